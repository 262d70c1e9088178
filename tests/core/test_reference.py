"""Every block and net agrees with a NumPy reference that was written from the papers, in outputs and gradients."""

import keras
import numpy as np
import pytest
from keras import ops

from modality_nets import (
    AudioInputNet,
    ImageInputNet,
    LabelOutputNet,
    SpectrogramInputNet,
    TextInputNet,
    TextOutputNet,
    WaveformInputNet,
    XceptionInputNet,
    XceptionOutputNet,
)
from modality_nets.conv_res import ConvRes, ConvStep2D
from modality_nets.mel import mel_filters
from multimodel.body import AttentionBlock, Body, ConvBlock, ConvStep, MoEBlock
from multimodel.body.routing import NoisyTopKRouter, squared_variation, switch_loss, z_loss
from multimodel.body.timing import timing_signal
from tests.core.agreement import assert_agrees
from tests.core.compiled import compiled
from tests.core.descriptors import mask_of, randomize
from tests.reference import numpy_blocks, numpy_nets

DIM, LENGTH, REAL = 16, 30, 22
MASK, SOURCE_MASK = mask_of((REAL,), LENGTH)[0], mask_of((5,), 9)[0]


def random_layer(layer, *shape):
    layer.build(shape or (None, None, DIM))
    randomize(layer)
    return layer


def vectors(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape or (LENGTH, DIM)).astype("float32")


def step_weights(weights, step):
    depthwise = weights(step.depthwise)
    depthwise = depthwise[:, 0, :, 0] if isinstance(step, ConvStep) else depthwise[..., 0]
    return depthwise, weights(step.pointwise.kernel), weights(step.norm.gamma), weights(step.norm.beta)


def block_weights(weights, block):
    return [step_weights(weights, step) for step in (*block.steps, block.shortcut)]


def projections(weights, attention):
    return [
        weights(layer.kernel)
        for layer in (attention.query, attention.key, attention.value, attention.output_projection)
    ]


def moe_reference(weights, block, x):
    return numpy_blocks.moe_block(
        x,
        weights(block.router.gate.kernel),
        weights(block.experts.expand),
        weights(block.experts.reduce),
        weights(block.norm.gamma),
        weights(block.norm.beta),
        block.top_k,
    )


def attention_reference(weights, block, x, source, mask, source_mask):
    return numpy_blocks.attention_block(
        x,
        source,
        [step_weights(weights, step) for step in block.steps],
        projections(weights, block.self_attention),
        projections(weights, block.attention),
        block.num_heads,
        mask,
        source_mask,
    )


def block_reference(weights, block, x, source, mask, source_mask):
    if isinstance(block, ConvBlock):
        steps = [step_weights(weights, step) for step in block.steps]
        return numpy_blocks.conv_block(x, steps, block.causal, mask)
    if isinstance(block, AttentionBlock):
        return attention_reference(weights, block, x, source, mask, source_mask)
    return moe_reference(weights, block, x)


@pytest.mark.parametrize(("size", "dilation", "causal"), [(3, 1, False), (15, 1, True), (15, 8, False), (15, 8, True)])
def test_conv_step(size, dilation, causal):
    step = random_layer(ConvStep(DIM, size, dilation, causal))
    assert_agrees(
        step,
        lambda x: step(x[0][None], mask=MASK[None])[0, :REAL],
        lambda w, x: numpy_blocks.conv_step(x[0], step_weights(w, step), dilation, causal, MASK)[:REAL],
        [vectors()],
    )


@pytest.mark.parametrize("causal", [False, True])
def test_conv_block(causal):
    block = random_layer(ConvBlock(DIM, causal))
    assert_agrees(
        block,
        lambda x: block(x[0][None], mask=MASK[None])[0, :REAL],
        lambda w, x: block_reference(w, block, x[0], None, MASK, None)[:REAL],
        [vectors()],
    )


def test_attention_block():
    block = random_layer(AttentionBlock(DIM, num_heads=4))
    assert_agrees(
        block,
        lambda x: block(x[0][None], mask=MASK[None], context=x[1][None], context_mask=SOURCE_MASK[None])[0, :REAL],
        lambda w, x: block_reference(w, block, *x, MASK, SOURCE_MASK)[:REAL],
        [vectors(), vectors(9, DIM, seed=1)],
    )


@pytest.mark.parametrize(("experts", "k", "length"), [(6, 2, 30), (3, 3, 30), (40, 4, 200), (5, 1, 1)])
def test_moe_block(experts, k, length):
    block = random_layer(MoEBlock(DIM, experts, k))
    assert_agrees(
        block, lambda x: block(x[0][None])[0], lambda w, x: moe_reference(w, block, x[0]), [vectors(length, DIM)]
    )


def test_body():
    """The whole arrangement: timing, encoder, mixer and decoder."""
    body = random_layer(Body.tiny(DIM))

    def reference(weights, x):
        source, target = x
        source = source + numpy_blocks.timing(*source.shape)
        for block in body.encoder:
            source = block_reference(weights, block, source, None, SOURCE_MASK, None)
        for block in (*body.mixer, *body.decoder):
            target = block_reference(weights, block, target, source, MASK, SOURCE_MASK)
        return target[:REAL]

    assert_agrees(
        body,
        lambda x: body(x[0][None], x[1][None], mask=SOURCE_MASK[None], shifted_mask=MASK[None])[0, :REAL],
        reference,
        [vectors(9, DIM, seed=1), vectors()],
    )


def drawn_noise(monkeypatch, shape):
    """Makes the router draw the noise that is returned."""
    noise = vectors(*shape, seed=7)
    monkeypatch.setattr(keras.random, "normal", lambda shape, **arguments: ops.convert_to_tensor(noise))
    return noise


@pytest.mark.parametrize("which", ["importance", "load", "switch", "z"])
def test_routing_losses(which, monkeypatch):
    """Each loss on the noise that was drawn, padding left out."""
    router = random_layer(NoisyTopKRouter(6, 2), None, DIM)
    noise = drawn_noise(monkeypatch, (LENGTH, 6))
    losses = {
        "importance": lambda sums: squared_variation(sums.importance),
        "load": lambda sums: squared_variation(sums.load),
        "switch": switch_loss,
        "z": z_loss,
    }

    def reference(weights, x):
        kernels = weights(router.gate.kernel), weights(router.noise.kernel)
        results = numpy_blocks.routing_losses(x[0][:REAL], *kernels, noise[:REAL], 2)
        return np.array(dict(zip(losses, results, strict=True))[which])

    assert_agrees(router, lambda x: losses[which](router(x[0], MASK, training=True)[2]), reference, [vectors()])


def test_gates_in_training(monkeypatch):
    router = random_layer(NoisyTopKRouter(6, 2), None, DIM)
    noise = drawn_noise(monkeypatch, (LENGTH, 6))

    def dense(x):
        gates, experts, _ = router(x[0], MASK, training=True)
        return ops.sum(ops.one_hot(experts[:REAL], 6) * gates[:REAL, :, None], axis=1)

    def reference(weights, x):
        sigma = np.log1p(np.exp(x[0] @ weights(router.noise.kernel))) + 1e-2
        return numpy_blocks.top_k_gates(x[0] @ weights(router.gate.kernel) + sigma * noise, 2)[:REAL]

    assert_agrees(router, dense, reference, [vectors()])


def test_losses_by_hand():
    assert float(squared_variation(np.array([2.0, 2.0, 2.0]))) == 0
    # Mean 2, population variance (1 + 0 + 1) / 3.
    assert float(squared_variation(np.array([1.0, 2.0, 3.0]))) == pytest.approx(2 / 3 / 4, rel=1e-6)


@pytest.mark.parametrize(("length", "dim"), [(1, 2), (12, 16), (200, 64)])
def test_timing_signal(length, dim):
    expected = numpy_blocks.timing(length, dim)
    np.testing.assert_allclose(ops.convert_to_numpy(timing_signal(length, dim)), expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(
        ops.convert_to_numpy(timing_signal(ops.arange(length), dim)), expected, rtol=0, atol=1e-4
    )


GRID_MASK = np.arange(7)[:, None] * np.ones((1, 5)) < 5


@pytest.mark.parametrize(("size", "strides"), [((3, 3), (1, 1)), ((3, 3), (2, 2)), ((3, 1), (1, 1)), ((1, 1), (2, 1))])
def test_conv_step_2d(size, strides):
    step = random_layer(ConvStep2D(12, size, strides), None, None, None, 6)
    real = GRID_MASK[:: strides[0], :: strides[1]]
    assert_agrees(
        step,
        lambda x: step(x[0][None], mask=GRID_MASK[None])[0] * real[..., None].astype("float32"),
        lambda w, x: numpy_nets.conv_step_2d(x[0], step_weights(w, step), strides, GRID_MASK) * real[..., None],
        [vectors(7, 5, 6)],
    )


@pytest.mark.parametrize("strides", [(2, 2), (2, 1)])
def test_conv_res(strides):
    block = random_layer(ConvRes(12, strides=strides), None, None, None, 6)
    real = GRID_MASK[:: strides[0], :: strides[1]]
    assert_agrees(
        block,
        lambda x: block(x[0][None], mask=GRID_MASK[None])[0][0] * real[..., None].astype("float32"),
        lambda w, x: (
            numpy_nets.conv_res(x[0], block_weights(w, block), (3, 3), strides, GRID_MASK)[0] * real[..., None]
        ),
        [vectors(7, 5, 6)],
    )


def test_entry_flow():
    net = random_layer(XceptionInputNet(DIM))
    picture = np.random.default_rng(0).integers(0, 256, (33, 20, 3)).astype("uint8")

    def reference(weights, x):
        steps = [step_weights(weights, step) for step in net.steps]
        return numpy_nets.entry_flow(
            picture, {"steps": steps, "blocks": [block_weights(weights, block) for block in net.blocks]}
        )

    assert_agrees(net, lambda x: net(picture[None])[0][0], reference, [])


@pytest.mark.parametrize("columns", [6, 1])
def test_exit_flow(columns):
    net = random_layer(XceptionOutputNet(5, DIM, columns, filters=(24, 32)))
    mask = mask_of((18,), LENGTH)[0]

    def reference(weights, x):
        parts = {
            "skip": step_weights(weights, net.skip),
            "steps": [step_weights(weights, step) for step in net.steps],
            "classes": (weights(net.classes.kernel), weights(net.classes.bias)),
        }
        return numpy_nets.exit_flow(x[0], parts, (LENGTH // columns, columns), mask)

    assert_agrees(net, lambda x: net(x[0][None], mask=mask[None])[0, 0], reference, [vectors()])


# The first ConvRes blocks of an audio net normalise over 2 and 4 channels, which is all but a step function. Gradients
# through them are compared in double precision, which JAX leaves off; those of one block (test_conv_res) on both.
EXACT = {"dtype": "float64"} if keras.backend.backend() == "tensorflow" else {}


def test_waveform_net():
    net = random_layer(WaveformInputNet(DIM, **EXACT))
    samples, mask = vectors(1000) / 4, mask_of((600,), 1000)[0]

    def reference(weights, x):
        blocks = [block_weights(weights, block) for block in net.blocks]
        parts = {"blocks": blocks, "projection": weights(net.projection.kernel)}
        return numpy_nets.waveform_net(samples, parts, mask)[0][:3]

    assert_agrees(net, lambda x: net(samples[None], mask=mask[None])[0][0, :3], reference, [], bool(EXACT))


def test_spectrogram_net():
    net = random_layer(SpectrogramInputNet(DIM, 1000, num_mels=5, frame_seconds=0.008, hop_seconds=0.002, **EXACT))
    samples = vectors(700) / 4

    def reference(weights, x):
        blocks = [block_weights(weights, block) for block in net.blocks]
        parts = {"blocks": blocks, "projection": weights(net.projection.kernel)}
        return numpy_nets.spectrogram_net(samples, parts, 8, 2, 8, mel_filters(5, 8, 1000))

    assert_agrees(net, lambda x: net(samples[None])[0][0], reference, [], bool(EXACT))


@pytest.mark.parametrize("samples", [1, 79, 80, 2001])
def test_log_mel(samples):
    net = AudioInputNet(DIM, 8000, num_mels=20)
    clip = np.random.default_rng(0).normal(size=samples).astype("float32")
    frames, mask = net.log_mel(ops.convert_to_tensor(clip[None]), ops.ones((1, samples), "bool"))
    expected = numpy_blocks.log_mel(clip, 200, 80, 256, mel_filters(20, 256, 8000))
    assert frames.shape[1] == mask.shape[1] == len(expected)
    np.testing.assert_allclose(ops.convert_to_numpy(frames)[0], expected, rtol=0, atol=1e-3)


def test_mel_filters_cover_all_frequencies_between_the_ends():
    filters = mel_filters(20, 256, 8000)
    assert filters.min() >= 0
    assert (filters.sum(0) > 0).all()
    np.testing.assert_allclose(filters.sum(1)[20:110], 1, atol=0.05)  # neighbouring triangles add up


@pytest.mark.parametrize("tied", [False, True])
def test_text_nets(tied):
    source, target = random_layer(TextInputNet(20, DIM)), random_layer(TextOutputNet(20, DIM, tied=tied))
    ids = np.array([[3, 7, 7, 0]])
    assert_agrees(
        source, lambda x: source(ids)[0][0], lambda w, x: w(source.embedding.embeddings)[ids[0]] * DIM**0.5, []
    )
    assert_agrees(
        target,
        lambda x: ops.concatenate([target(x[0][None])[0], target.embed(ids)[0] @ ops.ones((DIM, 20))], axis=0),
        lambda w, x: np.concatenate(
            [
                x[0] @ (w(target.embedding.embeddings).T if tied else w(target.softmax.kernel)),
                w(target.embedding.embeddings)[ids[0]] * DIM**0.5 @ np.ones((DIM, 20)),
            ]
        ),
        [vectors()],
    )


def test_label_net():
    net = random_layer(LabelOutputNet(5, DIM))

    def reference(w, x):
        hidden = np.maximum(x[0] @ w(net.hidden.kernel) + w(net.hidden.bias), 0)
        return hidden[:REAL].mean(0) @ w(net.classes.kernel) + w(net.classes.bias)

    assert_agrees(net, lambda x: net(x[0][None], mask=MASK[None])[0, 0], reference, [vectors()])


def test_vectors_that_fill_no_grid_are_refused():
    net = random_layer(XceptionOutputNet(5, DIM, columns=7, filters=(24, 32)))
    with pytest.raises(ValueError, match=r"Received: 30 vectors, columns=7"):
        net(vectors()[None])


@pytest.mark.parametrize(
    ("net", "inputs"),
    [
        (XceptionInputNet(DIM), np.zeros((1, 40, 70, 3), "uint8")),
        (ImageInputNet(DIM), np.zeros((1, 40, 70, 3), "uint8")),
        (SpectrogramInputNet(DIM, 1000, num_mels=5, frame_seconds=0.008), np.zeros((1, 3000), "float32")),
        (WaveformInputNet(DIM), np.zeros((1, 3000), "float32")),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_grids_hold_all_vectors(net, inputs):
    random_layer(net)
    count, grid = compiled(lambda x: net(x)[0])(inputs).shape[1], net.grid(inputs.shape[1:])
    assert grid is None or grid[0] * grid[1] == count
    assert (grid is None) == isinstance(net, WaveformInputNet)


def test_kernels_without_a_middle_and_uneven_strides_are_refused():
    for arguments in ({"kernel_size": (2, 3)}, {"strides": (2, 1)}):
        with pytest.raises(ValueError, match=r"Received: kernel_size=.*Choose odd"):
            ConvStep2D(8, **arguments)
