"""What a step costs, in numbers that do not depend on the machine: operations, copies, rows."""

import collections

import keras
import numpy as np
import pytest
from keras import ops

from multimodel import Body
from multimodel.backend import compile_for_backend
from multimodel.body import AttentionBlock, ConvBlock, MoEBlock, moe
from multimodel.body.moe import Experts
from multimodel.generation.generator import Generator
from multimodel.training import losses
from multimodel.training.adam import Adam
from multimodel.training.losses import SmoothedCrossEntropy
from tests.core import tiny
from tests.core.compiled import gradients

DIM = 16
tensorflow_alone = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="counts the operations that TensorFlow traces"
)


def operations(function, *arguments):
    """The operations of a traced function, those of the functions that it calls included."""
    import tensorflow as tf

    graph = tf.function(function).get_concrete_function(*arguments).graph
    return [
        *graph.get_operations(),
        *(op for inner in graph._functions.values() for op in inner.graph.get_operations()),
    ]


def counted(ops_):
    """How many of each type, without what computes nothing."""
    free = ("Const", "Placeholder", "Identity", "ReadVariableOp", "Reshape", "Shape", "NoOp", "IdentityN")
    return collections.Counter(op.type for op in ops_ if op.type not in free)


def gradient_operations(block, length=24, **arguments):
    """The operations of a block and of its gradient."""
    import tensorflow as tf

    block.build((None, None, DIM))

    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = ops.sum(block(x, mask=ops.ones((2, length), "bool"), training=True, **arguments))
        return tape.gradient(value, [x, *(weight.value for weight in block.trainable_variables)])

    return operations(run, tf.zeros((2, length, DIM)))


@tensorflow_alone
@pytest.mark.parametrize(
    ("block", "context", "most"),
    [
        (lambda: ConvBlock(DIM), {}, 190),
        (lambda: AttentionBlock(DIM, 2), {"context": np.ones((2, 7, DIM), "float32")}, 165),
        (lambda: MoEBlock(DIM, 4, 2), {}, 370),
    ],
    ids=["ConvBlock", "AttentionBlock", "MoEBlock"],
)
def test_a_block_takes_few_operations_whatever_the_length(block, context, most):
    few, many = (counted(gradient_operations(block(), length, **context)) for length in (24, 96))
    assert few.total() <= most
    assert abs(few.total() - many.total()) <= 5  # a length that the dilation divides needs less padding
    assert few["StridedSliceGrad"] <= 1  # of the importances, a few numbers


@tensorflow_alone
def test_a_weight_is_updated_by_few_operations():
    import tensorflow as tf

    def updates(count):
        weights = [keras.Variable(np.ones((3, 4), "float32")) for _ in range(count)]
        optimizer = Adam(1e-3, global_clipnorm=1.0)
        optimizer.build(weights)
        return counted(operations(lambda: optimizer.apply([tf.ones((3, 4))] * count, weights)))

    few, many = updates(5), updates(25)
    assert many["ResourceApplyAdam"] == 25
    assert many.total() - few.total() <= 4 * 20


@tensorflow_alone
def test_no_float32_copy_of_all_logits(monkeypatch):
    import tensorflow as tf

    monkeypatch.setattr(losses, "AT_ONCE", 100)
    logits, targets = tf.zeros((4, 5, 20), "bfloat16"), tf.zeros((4, 5), "int32")

    def run(logits):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            loss = SmoothedCrossEntropy(0.1)(targets, logits)
        return tape.gradient(loss, logits)

    copies = [
        output
        for op in operations(run, logits)
        for output in op.outputs
        if output.dtype == "float32" and output.shape.rank is not None and output.shape.num_elements() == 4 * 5 * 20
    ]
    assert not copies


@pytest.mark.parametrize("supports_jit", [True, False] if keras.backend.backend() == "tensorflow" else [True])
@pytest.mark.parametrize("num_experts", [4, 60, 240])
def test_rows_that_experts_multiply_do_not_grow_with_their_number(num_experts, supports_jit, monkeypatch):
    """At most 2.5 rows for each choice, and 8 for each expert; with shapes that need not be known, 1.5."""
    rows = []

    def dispatched(*arguments):
        parts = dispatch(*arguments)
        rows.append(sum(int(part.shape[0]) for part in parts))
        return parts

    dispatch = moe.dispatch
    monkeypatch.setattr(moe, "dispatch", dispatched)
    experts = Experts(num_experts, DIM, DIM)
    experts.build()
    experts.supports_jit = supports_jit
    tokens, top_k = 512, 4
    chosen = np.argsort(np.random.default_rng(0).normal(size=(tokens, num_experts)))[:, :top_k].astype("int32")
    x, gates = np.ones((tokens, DIM), "float32"), np.full((tokens, top_k), 1 / top_k, "float32")
    experts(x, gates, chosen)
    assert rows[0] <= (2.5 if supports_jit else 1.5) * tokens * top_k + 8 * num_experts


def test_rematerialised_gradients_are_the_same():
    results = []
    for remat in (False, True):
        keras.utils.set_random_seed(3)
        body = Body.stacked(DIM, (2, 1, 1), 4, 2, dropout=0.3, remat=remat)
        body.build()
        random = np.random.default_rng(0)
        inputs, targets = (random.normal(size=(2, n, DIM)).astype("float32") for n in (9, 5))
        weights = body.trainable_variables
        state = [variable for variable in body.variables if all(variable is not weight for weight in weights)]

        def loss(body=body, inputs=inputs, targets=targets):
            return ops.sum(ops.square(body(inputs, targets, training=True))) + sum(body.losses)

        results.append(gradients(loss, weights, state))
    for kept, again in zip(*results, strict=True):
        np.testing.assert_allclose(again, kept, rtol=1e-4, atol=1e-4 * np.abs(kept).max())


@tensorflow_alone
def test_rematerialised_blocks_are_computed_again():
    once, twice = (
        counted(gradient_operations(ConvBlock(DIM, remat=remat)))["DepthwiseConv2dNative"] for remat in (False, True)
    )
    assert (once, twice) == (4, 8)


@tensorflow_alone
def test_a_step_with_xla_gives_the_same_losses(monkeypatch):
    """Every layer that is written in two ways, in one model. XLA has random numbers of its own, so there are none."""
    monkeypatch.setattr(keras.random, "normal", lambda shape, seed: ops.zeros(shape))
    histories = []
    for xla in ("off", "on"):
        keras.utils.set_random_seed(0)
        signatures = [s for s in tiny.SIGNATURES if s.input_modality == "text"]
        model = tiny.model(signatures, body=Body.tiny(tiny.DIM, dropout=0.0))
        x = {task: values for task, values in tiny.features().items() if task in model.signatures}
        y = {task: values["targets"] for task, values in x.items()}
        loss = {task: SmoothedCrossEntropy(0.1) for task in x}
        compile_for_backend(model, xla, optimizer=Adam(1e-2, global_clipnorm=1.0), loss=loss)
        assert model.jit_compile == (xla == "on")
        Generator(model, "english_german")  # which is compiled beside it, and shares its layers
        histories.append([model.train_on_batch(x, y, return_dict=True)["loss"] for _ in range(3)])
    np.testing.assert_allclose(histories[1], histories[0], rtol=1e-3)
