"""Laws that hold for every block, net and body."""

import keras
import numpy as np
import pytest
from keras import ops

from multimodel.body import AttentionBlock, Body
from multimodel.body.routing import NoisyTopKRouter
from tests.core.compiled import gradients
from tests.core.descriptors import BLOCKS, BODIES, DIM, ROWS, arguments, built, call, mask_of, run


def each(rows):
    return pytest.mark.parametrize("row", rows, ids=lambda row: row.name)


CAUSAL = [row for row in BLOCKS + BODIES if row.causal]
PADDED = [row for row in ROWS if row.lengths is not None]


@each(ROWS)
def test_config_round_trip(row):
    layer = built(row)
    copy = type(layer).from_config(layer.get_config())
    copy.build((None, None, DIM))
    copy.set_weights(layer.get_weights())
    np.testing.assert_array_equal(run(copy, *arguments(row))[0], run(layer, *arguments(row))[0])


@each(ROWS)
def test_save_round_trip(row, tmp_path):
    layer = built(row)
    inputs, _, context, _ = arguments(row)
    x = keras.Input(inputs.shape[1:], dtype=inputs.dtype.name)
    symbols, values = [x], [inputs]
    if row.context:
        symbols, values = [x, keras.Input(context.shape[1:])], [inputs, context]
    outputs = call(layer, x, context=symbols[1] if row.context else None)
    model = keras.Model(symbols, outputs[0] if isinstance(outputs, tuple) else outputs)
    model.save(tmp_path / "part.keras")
    again = keras.saving.load_model(tmp_path / "part.keras")
    np.testing.assert_array_equal(again.predict(values, verbose=0), model.predict(values, verbose=0))


@each(ROWS)
def test_symbolic_shape_is_eager_shape(row):
    layer = built(row)
    inputs, mask, context, context_mask = arguments(row)
    x, m, c = (
        None if a is None else keras.Input(batch_shape=a.shape, dtype=a.dtype.name) for a in (inputs, mask, context)
    )
    symbolic = call(layer, x, m, c)
    symbolic = symbolic[0] if isinstance(symbolic, tuple) else symbolic
    eager = run(layer, inputs, mask, context, context_mask)[0]
    assert tuple(symbolic.shape) == eager.shape
    assert keras.backend.standardize_dtype(symbolic.dtype) == eager.dtype.name


@each(PADDED)
def test_padding_changes_nothing(row):
    """Noise under the mask, in inputs and source, changes no real output."""
    layer = built(row)
    inputs, mask, context, context_mask = arguments(row)
    before, real = run(layer, inputs, mask, context, context_mask)
    noise = row.inputs(np.random.default_rng(9))
    inputs = np.where(mask.reshape(mask.shape + (1,) * (inputs.ndim - 2)), inputs, noise)
    if context is not None:
        context = np.where(context_mask[..., None], context, 1e3)
    after, _ = run(layer, inputs, mask, context, context_mask)
    real = np.ones(before.shape[:2], bool) if real is None else real
    np.testing.assert_allclose(after[real], before[real], rtol=0, atol=1e-6)


@each(PADDED)
def test_more_padding_changes_nothing(row):
    """A row padded to the longest of its batch gives what it gives alone, unpadded."""
    layer = built(row)
    inputs, mask, context, context_mask = arguments(row)
    whole, real = run(layer, inputs, mask, context, context_mask)
    for i, length in enumerate(row.lengths):
        part = None if context is None else context[i : i + 1, : context_mask[i].sum()]
        part_mask = None if context is None else np.ones(part.shape[:2], bool)
        alone, alone_real = run(layer, inputs[i : i + 1, :length], mask[i : i + 1, :length], part, part_mask)
        expected = whole[i] if real is None else whole[i][real[i]]
        actual = alone[0] if alone_real is None else alone[0][alone_real[0]]
        np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-5)


@each(ROWS)
def test_rows_do_not_see_each_other(row):
    layer = built(row)
    inputs, mask, context, context_mask = arguments(row)
    together, real = run(layer, inputs, mask, context, context_mask)
    for i in range(len(inputs)):
        alone, _ = run(layer, *(None if a is None else a[i : i + 1] for a in (inputs, mask, context, context_mask)))
        where = slice(None) if real is None else real[i]
        np.testing.assert_allclose(alone[0][where], together[i][where], rtol=0, atol=1e-5)


@each(CAUSAL)
def test_causality(row):
    """What is written at t depends on nothing after t."""
    layer = built(row)
    inputs, _, context, context_mask = arguments(row)
    before, _ = run(layer, inputs, None, context, context_mask)
    for t in (0, 1, 7, 22):
        changed = inputs.copy()
        changed[:, t + 1 :] += 10
        after, _ = run(layer, changed, None, context, context_mask)
        np.testing.assert_allclose(after[:, : t + 1], before[:, : t + 1], rtol=0, atol=1e-6)
        assert np.abs(after[:, t + 1 :] - before[:, t + 1 :]).max() > 1e-3


def stepped(layer, inputs, context, context_mask):
    """`(b, t, dim)`, a position at a time."""
    context = None if context is None else ops.cast(context, layer.compute_dtype)
    context_mask = None if context_mask is None else ops.convert_to_tensor(context_mask)
    if isinstance(layer, Body):
        cache = layer.start(layer.encode([context], [context_mask])[0], context_mask, inputs.shape[1])
    else:
        cache = layer.start(len(inputs), inputs.shape[1], context, context_mask)
    outputs = []
    for t in range(inputs.shape[1]):
        output, cache = layer.step(ops.convert_to_tensor(inputs[:, t : t + 1], layer.compute_dtype), cache)
        outputs.append(ops.convert_to_numpy(output))
    return np.concatenate(outputs, axis=1)


@each(CAUSAL)
def test_step_is_call(row):
    layer = built(row)
    inputs, _, context, context_mask = arguments(row)
    whole, _ = run(layer, inputs, None, context, context_mask)
    np.testing.assert_allclose(stepped(layer, inputs, context, context_mask), whole, rtol=0, atol=2e-5)


@each(CAUSAL)
def test_reordered_caches_go_on_as_their_rows(row):
    """Rows of one source change places after a few steps: each goes on from the inputs of the row that it was."""
    layer = built(row)
    inputs, _, context, _ = arguments(row)
    context = None if context is None else np.repeat(context[:1], len(inputs), axis=0)
    rows = np.roll(np.arange(len(inputs)), 1)
    changed = np.concatenate([inputs[rows, :20], inputs[:, 20:]], axis=1)
    whole, _ = run(layer, changed, None, context, None)
    context = None if context is None else ops.convert_to_tensor(context)
    if isinstance(layer, Body):
        mask = ops.ones(context.shape[:2], "bool")
        cache = layer.start(layer.encode([context], [mask])[0], mask, inputs.shape[1])
    else:
        cache = layer.start(len(inputs), inputs.shape[1], context, None)
    for t in range(inputs.shape[1]):
        cache = layer.reorder(cache, ops.convert_to_tensor(rows.astype("int32"))) if t == 20 else cache
        stepped, cache = layer.step(ops.convert_to_tensor(inputs[:, t : t + 1]), cache)
    np.testing.assert_allclose(ops.convert_to_numpy(stepped)[:, 0], whole[:, -1], rtol=0, atol=2e-5)


@each(ROWS)
def test_every_weight_gets_a_gradient(row):
    layer = built(row)
    inputs, mask, context, context_mask = arguments(row)

    def loss():
        """A random projection of the outputs plus the layer's own losses, in training."""
        outputs = call(layer, inputs, mask, context, context_mask, training=True)
        outputs = outputs[0] if isinstance(outputs, tuple) else outputs
        total = ops.sum(outputs * np.random.default_rng(3).normal(size=outputs.shape).astype("float32")) + sum(
            layer.losses
        )
        return total + ops.sum(layer.embed(np.array([[1, 2]]))) if hasattr(layer, "embed") else total

    weights = layer.trainable_weights
    for weight, gradient in zip(weights, gradients(loss, weights, layer.non_trainable_variables), strict=True):
        assert gradient is not None, weight.path
        assert np.isfinite(gradient).all(), weight.path
        assert np.abs(gradient).max() > 0, weight.path


def rough(row, fine, policy):
    """The layer of a row under a policy of 16 bits, with the weights of another."""
    keras.config.set_dtype_policy(policy)
    try:
        layer = row.make()
    finally:
        keras.config.set_dtype_policy("float32")
    layer.build((None, None, DIM))
    layer.set_weights(fine.get_weights())
    return layer


def assert_roughly_equal(outputs, fine):
    """A choice of experts may turn on a rounding, so the bulk is asked, not the extreme."""
    assert np.quantile(np.abs(outputs.astype("float32") - fine), 0.9) < 0.05 * np.abs(fine).max()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@each(ROWS)
def test_16_bits_agree_to_their_precision(row, dtype):
    layer = built(row)
    of_16_bits = rough(row, layer, f"mixed_{dtype}")
    assert layer.get_config().keys() == of_16_bits.get_config().keys()
    fine, real = run(layer, *arguments(row))
    outputs, _ = run(of_16_bits, *arguments(row))
    assert outputs.dtype.name == dtype
    real = ... if real is None else real
    assert_roughly_equal(outputs[real], fine[real])
    routers = [part for part in of_16_bits._flatten_layers() if isinstance(part, NoisyTopKRouter)]
    assert all(router.gate.compute_dtype == "float32" for router in routers)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@each(CAUSAL)
def test_steps_in_16_bits_agree_to_their_precision(row, dtype):
    layer = built(row)
    inputs, _, context, context_mask = arguments(row)
    inputs = inputs[:, :8]
    outputs = stepped(rough(row, layer, f"mixed_{dtype}"), inputs, context, context_mask)
    assert outputs.dtype.name == dtype
    assert_roughly_equal(outputs, stepped(layer, inputs, context, context_mask))


@each([row for row in ROWS if row.context])
def test_an_all_padding_source_is_defined(row):
    layer = built(row)
    inputs, mask, context, _ = arguments(row)
    nothing = np.zeros(context.shape[:2], bool)
    outputs, _ = run(layer, inputs, mask, context, nothing)
    others, _ = run(layer, inputs, mask, context * 100 - 3, nothing)
    assert np.isfinite(outputs).all()
    np.testing.assert_allclose(others, outputs, rtol=0, atol=1e-6)


@each(BLOCKS)
def test_training_is_an_argument_of_every_block(row):
    layer = built(row)
    run(layer, *arguments(row), training=True)
    run(layer, *arguments(row), training=False)


def test_masks_cover_lengths():
    np.testing.assert_array_equal(mask_of((2, 0), 3), [[True, True, False], [False] * 3])


def test_rows_name_every_part():
    """A block or net without a row would escape the laws."""
    import modality_nets
    import multimodel.body

    tested = {type(row.make()).__name__ for row in ROWS}
    parts = set(multimodel.body.__all__) - {"Block", "ConvStep"} | set(modality_nets.__all__) - {
        "InputNet",
        "OutputNet",
    }
    assert tested == parts


def test_attention_steps_in_a_compiled_loop():
    """Its cache grows there, and takes the latest positions to the earlier ones, twice."""
    block = AttentionBlock(8, 2)
    block.build()

    class Stepped(keras.Model):
        def call(self, inputs):
            x, length = inputs["x"], inputs["x"].shape[1]

            def step(t, cache, written):
                stepped, cache = block.step(ops.take(x, ops.reshape(t, (1,)), axis=1), cache)
                return t + 1, cache, ops.where(ops.arange(length)[:, None] == t, stepped, written)

            start = ops.zeros((), "int32"), block.start(ops.shape(x)[0], length, inputs["context"]), ops.zeros_like(x)
            return ops.while_loop(lambda t, cache, written: t < length, step, start)[-1]

    model = Stepped()
    model.compile()
    generator = np.random.default_rng(0)
    x, context = (generator.normal(size=(3, length, 8)).astype("float32") for length in (40, 5))
    whole = block(ops.convert_to_tensor(x), context=ops.convert_to_tensor(context))
    stepped = model.predict_on_batch({"x": x, "context": context})
    np.testing.assert_allclose(stepped, ops.convert_to_numpy(whole), rtol=0, atol=2e-5)
