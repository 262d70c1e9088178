"""Experts: what is dropped and what is not, who learns, and balance."""

import keras
import numpy as np
import pytest
from keras import ops

from multimodel.body import MoEBlock
from multimodel.body.moe import Experts
from multimodel.body.routing import RoutingSums, collect_routing, switch_loss
from tests.core.compiled import gradients
from tests.core.descriptors import mask_of, randomize
from tests.reference import numpy_blocks

DIM, NUM_EXPERTS, TOKENS, TOP_K = 8, 5, 40, 2


@pytest.fixture
def experts():
    layer = Experts(NUM_EXPERTS, DIM, 12, tile=4)
    layer.build()
    randomize(layer)
    return layer


def choices(seed=0):
    """`(x, gates, chosen)`, with a few tokens that go nowhere."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(TOKENS, DIM)).astype("float32")
    liking = random.normal(size=(TOKENS, NUM_EXPERTS)) + np.array([3, 1, 0, 0, 0])
    chosen = np.argsort(-liking)[:, :TOP_K].astype("int32")
    gates = random.uniform(0.1, 1, size=(TOKENS, TOP_K)).astype("float32")
    chosen[::7], gates[::7] = NUM_EXPERTS, 0
    return x, gates, chosen


def by_hand(experts, x, gates, chosen, capacity):
    """Each expert takes its `capacity` choices with the largest gates."""
    expand, reduce = (ops.convert_to_numpy(kernel) for kernel in (experts.expand, experts.reduce))
    y = np.zeros_like(x)
    for expert in range(NUM_EXPERTS):
        takers = sorted(zip(*np.nonzero(chosen == expert), strict=True), key=lambda place: -gates[place])
        for token, choice in takers[:capacity]:
            y[token] += gates[token, choice] * (np.maximum(x[token] @ expand[expert], 0) @ reduce[expert])
    return y


@pytest.mark.parametrize("capacity", [1, 3, 10, TOKENS])
def test_capacity_keeps_the_largest_gates(experts, capacity):
    inputs = choices()
    actual = ops.convert_to_numpy(experts(*inputs, capacity=capacity))
    np.testing.assert_allclose(actual, by_hand(experts, *inputs, capacity), rtol=0, atol=1e-5)


def test_without_a_capacity_nothing_is_dropped(experts):
    inputs = choices()
    actual = ops.convert_to_numpy(experts(*inputs))
    np.testing.assert_allclose(actual, by_hand(experts, *inputs, TOKENS), rtol=0, atol=1e-5)
    np.testing.assert_allclose(actual, ops.convert_to_numpy(experts(*inputs, capacity=TOKENS)), rtol=0, atol=1e-6)


def block(**options):
    made = MoEBlock(DIM, NUM_EXPERTS, TOP_K, **options)
    made.build((None, None, DIM))
    randomize(made)
    return made


def sequences(rows=3, length=20, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, length, DIM)).astype("float32")


def test_a_large_capacity_changes_nothing_in_training(monkeypatch):
    noise = np.random.default_rng(1).normal(size=(60, NUM_EXPERTS)).astype("float32")
    monkeypatch.setattr(keras.random, "normal", lambda *shape, **arguments: ops.convert_to_tensor(noise))
    large, without = block(capacity_factor=100.0), block()
    np.testing.assert_allclose(
        ops.convert_to_numpy(large(sequences(), training=True)),
        ops.convert_to_numpy(without(sequences(), training=True)),
        rtol=0,
        atol=1e-6,
    )


def test_a_small_capacity_drops_in_training_and_never_at_inference():
    small, without = block(capacity_factor=0.1), block()
    x = sequences()
    np.testing.assert_array_equal(ops.convert_to_numpy(small(x)), ops.convert_to_numpy(without(x)))
    dropped = ops.convert_to_numpy(small.norm(x))
    trained = ops.convert_to_numpy(small(x, training=True))
    passed_by = np.isclose(trained, dropped, atol=1e-6).all(-1)
    # Each of 5 experts takes ceil(0.1 * 2 * 60 / 5) = 3 positions of the 60.
    assert 60 - 15 <= passed_by.sum() < 60


def test_padding_is_neither_routed_nor_counted():
    layer, mask = block(capacity_factor=1.0), mask_of((20, 5, 0), 20)
    with collect_routing() as record:
        layer(sequences(), mask=mask, training=True)
    sums = record.sums[layer]
    assert float(sums.tokens) == 25
    assert float(ops.sum(sums.choices)) == 25 * TOP_K
    assert float(ops.sum(sums.importance)) == pytest.approx(25, rel=1e-5)
    assert float(ops.sum(sums.probability)) == pytest.approx(25, rel=1e-5)
    gates, chosen, _ = layer.router(ops.reshape(sequences(), (-1, DIM)), mask.reshape(-1))
    assert (ops.convert_to_numpy(chosen)[~mask.reshape(-1)] == NUM_EXPERTS).all()
    assert (ops.convert_to_numpy(gates)[~mask.reshape(-1)] == 0).all()


def test_choices_are_counted_for_each_name():
    layer, mask = block(), mask_of((20, 5, 9), 20)
    with collect_routing() as record:
        with record.tokens({"one": 20, "two": 40}):
            layer(sequences(), mask=mask)
        with record.tokens({"two": 60}):
            layer(sequences(seed=1))
    counts = {name: ops.convert_to_numpy(values) for name, values in record.choices[layer].items()}
    assert counts["one"].sum() == 20 * TOP_K
    assert counts["two"].sum() == (5 + 9 + 60) * TOP_K
    np.testing.assert_array_equal(sum(counts.values()), ops.convert_to_numpy(record.sums[layer].choices))
    _, chosen, _ = layer.router(sequences()[0])
    np.testing.assert_array_equal(counts["one"], np.bincount(ops.convert_to_numpy(chosen).ravel(), minlength=5))


@pytest.mark.parametrize("capacity_factor", [None, 1.25])
def test_every_expert_gets_a_gradient(capacity_factor):
    layer = block(capacity_factor=capacity_factor)

    def loss():
        return ops.sum(layer(sequences(4, 30), training=True) * sequences(4, 30, seed=1))

    kernels = [layer.experts.expand, layer.experts.reduce]
    for gradient in gradients(loss, kernels, layer.non_trainable_variables):
        assert (np.abs(gradient).max(axis=(1, 2)) > 0).all()


def test_gates_begin_equal():
    """Zero matrices: every expert has the same chance, and noise alone decides."""
    layer = MoEBlock(DIM, NUM_EXPERTS, TOP_K)
    layer.build((None, None, DIM))
    with collect_routing() as record:
        layer(sequences(20, 50), training=True)
    choices = ops.convert_to_numpy(record.sums[layer].choices)
    assert choices.sum() == 2000
    assert choices.min() > 300  # 400 each but for chance, whose deviation is 16


def imbalance(layer, x):
    """Largest load over mean load, under the noise of training."""
    with collect_routing() as record:
        layer(x, training=True)
    counts = ops.convert_to_numpy(record.sums[layer].choices)
    return counts.max() / counts.mean()


@pytest.mark.parametrize(
    "weights",
    [{"balance": 0.01, "capacity_factor": 2.0}, {"balance": 0.0, "switch_loss": 0.01}],
    ids=["importance+load, capacity", "switch"],
)
def test_a_planted_imbalance_is_repaired(weights):
    """Two experts that take everything lose their lead by the losses alone, within 300 steps of a stock `fit`."""
    keras.utils.set_random_seed(0)
    layer = MoEBlock(DIM, NUM_EXPERTS, TOP_K, **weights)
    x = keras.Input((20, DIM))
    model = keras.Model(x, layer(x))
    inputs = np.abs(sequences(32))
    layer.router.gate.kernel.assign(np.eye(DIM, NUM_EXPERTS) * 0.1 + np.array([0.5, 0.5, 0, 0, 0]))
    assert imbalance(layer, inputs) > 0.9 * NUM_EXPERTS / TOP_K
    model.compile(keras.optimizers.Adam(1e-2), "mse", jit_compile=keras.backend.backend() == "jax")
    model.fit(inputs, ops.convert_to_numpy(layer.norm(inputs)), epochs=75, batch_size=8, verbose=0)  # 300 steps
    assert imbalance(layer, inputs) < 1.25


def test_balance_is_asked_of_the_sum_of_calls():
    """Two calls that each favour one expert, but not the same one, are in balance together."""
    layer = MoEBlock(DIM, num_experts=2, top_k=1, balance=1.0)

    def sums(*values):
        return RoutingSums(*[np.array(values, "float32")] * 4, np.float32(0), np.float32(4))

    one, other = sums(4, 0), sums(0, 4)
    assert float(layer.routing_loss(one)) == pytest.approx(2.0, rel=1e-6)
    assert float(layer.routing_loss(one + other)) == pytest.approx(0.0, abs=1e-6)
    assert float(switch_loss(one)) == pytest.approx(2.0, rel=1e-6)
    assert float(switch_loss(one + other)) == pytest.approx(1.0, rel=1e-6)


def test_a_block_alone_adds_its_own_loss_and_inside_a_model_leaves_it_to_the_model():
    layer = block(switch_loss=0.01, z_loss=0.001)
    layer(sequences(), training=True)
    assert len(layer.losses) == 1
    assert float(layer.losses[0]) > 0
    with collect_routing() as record:
        layer(sequences(), training=True)
        layer(sequences(seed=1), training=True)
    assert not layer.losses
    assert list(record.sums) == [layer]
    assert float(ops.sum(record.sums[layer].importance)) == pytest.approx(2 * 60, rel=1e-5)


def test_losses_are_weighted():
    x = sequences()

    def loss(**weights):
        keras.utils.set_random_seed(3)
        layer = MoEBlock(DIM, NUM_EXPERTS, TOP_K, **({"balance": 0.0} | weights))
        layer.build((None, None, DIM))
        randomize(layer)
        layer(x, training=True)
        return float(layer.losses[0])

    parts = [loss(balance=0.1), loss(switch_loss=0.2), loss(z_loss=0.3)]
    assert min(parts) > 0
    assert loss(balance=0.1, switch_loss=0.2, z_loss=0.3) == pytest.approx(sum(parts), rel=1e-5)
    assert loss(z_loss=0.6) == pytest.approx(2 * parts[2], rel=1e-5)


@pytest.mark.parametrize("options", [{"capacity_factor": 0}, {"capacity_factor": -1.0}, {"top_k": 0}, {"top_k": 9}])
def test_settings_that_cannot_be_are_refused(options):
    with pytest.raises(ValueError, match=r"Received: .*Choose"):
        MoEBlock(DIM, **options)


def test_the_reference_agrees_with_itself_on_k_equal_n():
    """With every expert chosen, gates are the plain softmax."""
    logits = np.random.default_rng(0).normal(size=(4, 3))
    np.testing.assert_allclose(numpy_blocks.top_k_gates(logits, 3), numpy_blocks.softmax(logits))
    layer = MoEBlock(DIM, num_experts=3, top_k=3)
    layer.build((None, None, DIM))
    randomize(layer)
    x = sequences(1)[0]
    gates, chosen, _ = layer.router(x)
    dense = np.zeros((len(x), 3))
    np.put_along_axis(dense, ops.convert_to_numpy(chosen), ops.convert_to_numpy(gates), axis=1)
    expected = numpy_blocks.softmax(x @ ops.convert_to_numpy(layer.router.gate.kernel))
    np.testing.assert_allclose(dense, expected, rtol=0, atol=1e-5)
