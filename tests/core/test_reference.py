"""Every block agrees with a NumPy reference that was written from the papers."""

import keras
import numpy as np
import pytest
from keras import ops

from modality_nets import AudioInputNet
from modality_nets.audio import mel_filters
from multimodel.body import AttentionBlock, ConvBlock, MoEBlock
from multimodel.body.routing import NoisyTopKRouter, RoutingSums, collect_routing, squared_variation
from multimodel.body.timing import timing_signal
from tests.core.descriptors import mask_of, randomize
from tests.reference import numpy_blocks as reference

DIM, LENGTH = 16, 30


def array(weight):
    return ops.convert_to_numpy(weight).astype("float64")


def step_weights(step):
    return array(step.depthwise)[:, 0, :, 0], array(step.pointwise), array(step.norm.gamma), array(step.norm.beta)


def projections(attention):
    return [
        array(layer.kernel) for layer in (attention.query, attention.key, attention.value, attention.output_projection)
    ]


def vectors(length, seed=0):
    return np.random.default_rng(seed).normal(size=(length, DIM)).astype("float32")


def random_block(block):
    block.build((None, None, DIM))
    randomize(block)
    return block


@pytest.mark.parametrize("causal", [False, True])
def test_conv_block(causal):
    block, x, mask = random_block(ConvBlock(DIM, causal)), vectors(LENGTH), mask_of((22,), LENGTH)
    expected = reference.conv_block(x, [step_weights(step) for step in block.steps], causal, mask[0])
    actual = ops.convert_to_numpy(block(x[None], mask=mask))[0]
    np.testing.assert_allclose(actual[mask[0]], expected[mask[0]], rtol=0, atol=1e-5)


def test_attention_block():
    block, x, source = random_block(AttentionBlock(DIM, num_heads=4)), vectors(LENGTH), vectors(9, 1)
    mask, source_mask = mask_of((22,), LENGTH), mask_of((5,), 9)
    expected = reference.attention_block(
        x,
        source,
        [step_weights(step) for step in block.steps],
        projections(block.self_attention),
        projections(block.attention),
        4,
        mask[0],
        source_mask[0],
    )
    actual = ops.convert_to_numpy(block(x[None], mask=mask, context=source[None], context_mask=source_mask))[0]
    np.testing.assert_allclose(actual[mask[0]], expected[mask[0]], rtol=0, atol=1e-5)


@pytest.mark.parametrize(("experts", "k", "length"), [(6, 2, 30), (3, 3, 30), (40, 4, 200), (5, 1, 1)])
def test_moe_block(experts, k, length):
    block, x = random_block(MoEBlock(DIM, experts, k)), vectors(length)
    expected = reference.moe_block(
        x,
        array(block.router.gate.kernel),
        array(block.experts.expand),
        array(block.experts.reduce),
        array(block.norm.gamma),
        array(block.norm.beta),
        k,
    )
    np.testing.assert_allclose(ops.convert_to_numpy(block(x[None]))[0], expected, rtol=0, atol=1e-5)


def test_importance_and_load():
    """The router's sums in training, on the noise that it drew, with padding left out."""
    router = NoisyTopKRouter(6, 2)
    router.build((None, DIM))
    randomize(router)
    x, real = vectors(LENGTH), np.arange(LENGTH) < 20
    drawn = {}
    normal = keras.random.normal

    def remember(shape, **arguments):
        drawn["noise"] = normal(shape, **arguments)
        return drawn["noise"]

    keras.random.normal = remember
    try:
        gates, experts, sums = router(x, real, training=True)
    finally:
        keras.random.normal = normal
    clean = x[:20] @ array(router.gate.kernel)
    sigma = np.log1p(np.exp(x[:20] @ array(router.noise.kernel))) + 1e-2
    noisy = clean + sigma * ops.convert_to_numpy(drawn["noise"])[:20]
    expected = reference.top_k_gates(noisy, 2)
    dense = np.zeros((20, 6))
    np.put_along_axis(dense, ops.convert_to_numpy(experts)[:20], ops.convert_to_numpy(gates)[:20], axis=1)
    np.testing.assert_allclose(dense, expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(ops.convert_to_numpy(sums.importance), expected.sum(0), rtol=0, atol=1e-4)
    np.testing.assert_allclose(
        ops.convert_to_numpy(sums.load), reference.load(clean, noisy, sigma, 2), rtol=0, atol=1e-4
    )


def test_squared_variation_by_hand():
    assert float(squared_variation(np.array([2.0, 2.0, 2.0]))) == 0
    # Mean 2, population variance (1 + 0 + 1) / 3.
    assert float(squared_variation(np.array([1.0, 2.0, 3.0]))) == pytest.approx(2 / 3 / 4, rel=1e-6)


def test_balance_is_asked_of_the_sum_of_calls():
    """Two calls that each favour one expert, but not the same one, are in balance together."""
    block = MoEBlock(DIM, num_experts=2, top_k=1, balance=1.0)
    one, other = (
        RoutingSums(np.array([4.0, 0.0]), np.array([4.0, 0.0])),
        RoutingSums(np.array([0.0, 4.0]), np.array([0.0, 4.0])),
    )
    assert float(block.balance_loss(one)) == pytest.approx(2.0, rel=1e-6)
    assert float(block.balance_loss(one + other)) == pytest.approx(0.0, abs=1e-6)


def test_a_block_alone_adds_its_own_loss_and_inside_a_model_leaves_it_to_the_model():
    block = random_block(MoEBlock(DIM))
    block(vectors(LENGTH)[None], training=True)
    assert len(block.losses) == 1
    assert float(block.losses[0]) > 0
    with collect_routing() as routing:
        block(vectors(LENGTH)[None], training=True)
        block(vectors(LENGTH, 1)[None], training=True)
    assert not block.losses
    assert list(routing) == [block]
    assert float(ops.sum(routing[block].importance)) == pytest.approx(2 * LENGTH, rel=1e-5)


@pytest.mark.parametrize(("length", "dim"), [(1, 2), (12, 16), (200, 64)])
def test_timing_signal(length, dim):
    expected = reference.timing(length, dim)
    np.testing.assert_allclose(ops.convert_to_numpy(timing_signal(length, dim)), expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(
        ops.convert_to_numpy(timing_signal(ops.arange(length), dim)), expected, rtol=0, atol=1e-4
    )


@pytest.mark.parametrize("samples", [1, 79, 80, 2001])
def test_log_mel(samples):
    net = AudioInputNet(DIM, 8000, num_mels=20)
    clip = np.random.default_rng(0).normal(size=samples).astype("float32")
    frames, mask = net.log_mel(ops.convert_to_tensor(clip[None]), ops.ones((1, samples), "bool"))
    expected = reference.log_mel(clip, 200, 80, 256, mel_filters(20, 256, 8000))
    assert frames.shape[1] == mask.shape[1] == len(expected)
    np.testing.assert_allclose(ops.convert_to_numpy(frames)[0], expected, rtol=0, atol=1e-3)


def test_mel_filters_cover_all_frequencies_between_the_ends():
    filters = mel_filters(20, 256, 8000)
    assert filters.min() >= 0
    assert (filters.sum(0) > 0).all()
    np.testing.assert_allclose(filters.sum(1)[20:110], 1, atol=0.05)  # neighbouring triangles add up
