"""One row for each block, net and body: how to build it, what it takes, and which laws hold for it."""

import dataclasses
import functools
from collections.abc import Callable

import keras
import numpy as np
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
from multimodel.body import AttentionBlock, Body, ConvBlock, MoEBlock
from tests.core.compiled import compiled

DIM, LENGTH, SOURCE_LENGTH = 16, 24, 7
BATCH_LENGTHS = (24, 13, 1)
SOURCE_LENGTHS = (7, 3, 1)


@dataclasses.dataclass(frozen=True)
class Row:
    """A part under test.

    Attributes:
        name: of the row.
        make: builds a new layer.
        inputs: `random -> array (3, ...)`, the first argument of `call`.
        causal: no output depends on a later position, and `step` equals `call`.
        context: `call` takes a source.
        lengths: real positions of each row of the inputs, or None where no length varies.
    """

    name: str
    make: Callable
    inputs: Callable
    causal: bool = False
    context: bool = False
    lengths: tuple | None = BATCH_LENGTHS


def _vectors(random):
    return random.normal(size=(3, LENGTH, DIM)).astype("float32")


def _ids(random):
    return random.integers(2, 50, size=(3, LENGTH)).astype("int32")


BLOCKS = [
    Row("ConvBlock", lambda: ConvBlock(DIM), _vectors),
    Row("ConvBlock causal", lambda: ConvBlock(DIM, causal=True), _vectors, causal=True),
    Row("AttentionBlock", lambda: AttentionBlock(DIM, num_heads=4), _vectors, causal=True, context=True),
    Row("MoEBlock", lambda: MoEBlock(DIM, num_experts=6, top_k=2), _vectors, causal=True),
    Row(
        "MoEBlock, modern losses",
        lambda: MoEBlock(DIM, num_experts=4, balance=0.0, switch_loss=0.01, z_loss=0.001, capacity_factor=1.0),
        _vectors,
        causal=True,
    ),
    Row("MoEBlock, all experts", lambda: MoEBlock(DIM, num_experts=3, top_k=3, hidden_dim=8), _vectors, causal=True),
]
BODIES = [Row("Body.tiny", lambda: Body.tiny(DIM), _vectors, causal=True, context=True)]
if keras.backend.backend() == "tensorflow":  # the same blocks, more of them; JAX compiles each anew, for minutes
    BODIES += [
        Row("Body.small", lambda: Body.small(DIM), _vectors, causal=True, context=True),
        Row("Body.paper", lambda: Body.paper(DIM, num_experts=8), _vectors, causal=True, context=True),
    ]
NETS = [
    Row("TextInputNet", lambda: TextInputNet(50, DIM), _ids),
    Row(
        "ImageInputNet",
        lambda: ImageInputNet(DIM, filters=(8,)),
        lambda random: random.integers(0, 256, (3, 12, 20, 3)).astype("uint8"),
        lengths=None,
    ),
    Row(
        "AudioInputNet",
        lambda: AudioInputNet(DIM, 8000, num_mels=16),
        lambda random: random.normal(size=(3, 2000)).astype("float32") / 4,
        lengths=(2000, 1111, 1),
    ),
    Row(
        "WaveformInputNet",
        lambda: WaveformInputNet(DIM),
        lambda random: random.normal(size=(3, 700)).astype("float32") / 4,
        lengths=(700, 257, 1),
    ),
    Row(
        "SpectrogramInputNet",
        lambda: SpectrogramInputNet(DIM, 1000, num_mels=5, frame_seconds=0.008, hop_seconds=0.002),
        lambda random: random.normal(size=(3, 700)).astype("float32") / 4,
        lengths=(700, 200, 1),
    ),
    Row(
        "XceptionInputNet",
        lambda: XceptionInputNet(DIM),
        lambda random: random.integers(0, 256, (3, 33, 20, 3)).astype("uint8"),
        lengths=None,
    ),
    Row(
        "XceptionOutputNet",
        lambda: XceptionOutputNet(5, DIM, 6, filters=(24, 32)),
        _vectors,
        lengths=(24, 12, 6),
    ),
    Row("XceptionOutputNet, sequence", lambda: XceptionOutputNet(5, DIM, filters=(24, 32)), _vectors),
    Row("TextOutputNet, tied", lambda: TextOutputNet(50, DIM, tied=True), _vectors),
    Row("TextOutputNet", lambda: TextOutputNet(50, DIM), _vectors),
    Row("LabelOutputNet", lambda: LabelOutputNet(5, DIM), _vectors),
]
ROWS = BLOCKS + BODIES + NETS


def mask_of(lengths, size):
    return np.arange(size) < np.array(lengths)[:, None]


@functools.cache
def built(row):
    """A layer with weights that are random everywhere, gates included, so that no law holds by a zero."""
    layer = row.make()
    layer.build((None, None, DIM))
    randomize(layer)
    return layer


def randomize(layer, seed=0):
    random = np.random.default_rng(seed)
    for weight in sorted(layer.trainable_weights, key=lambda weight: weight.path):
        scale = 0.5 / max(1, weight.shape[-2] if len(weight.shape) > 1 else 1) ** 0.5
        norm = 1.0 if weight.path.endswith("gamma") else 0.0
        weight.assign(norm + scale * random.normal(size=weight.shape))


def arguments(row, seed=0):
    """`(inputs, mask, context, context_mask)` as arrays; None where the row takes none."""
    random = np.random.default_rng(seed)
    inputs = row.inputs(random)
    mask = None if row.lengths is None else mask_of(row.lengths, inputs.shape[1])
    if not row.context:
        return inputs, mask, None, None
    context = random.normal(size=(3, SOURCE_LENGTH, DIM)).astype("float32")
    return inputs, mask, context, mask_of(SOURCE_LENGTHS, SOURCE_LENGTH)


def call(layer, inputs, mask=None, context=None, context_mask=None, training=False):
    """Calls a part of any kind with what it takes."""
    if isinstance(layer, Body):
        return layer(context, inputs, mask=context_mask, shifted_mask=mask, training=training)
    if context is not None:
        return layer(inputs, mask=mask, context=context, context_mask=context_mask, training=training)
    return layer(inputs, mask=mask, training=training)


@functools.cache
def _compiled_call(layer):
    return compiled(functools.partial(call, layer))


def run(layer, inputs, mask=None, context=None, context_mask=None, training=False):
    """Calls a part of any kind; gives `(outputs, mask)` as arrays, the mask of inputs where it keeps their length."""
    if training:
        outputs = call(layer, inputs, mask, context, context_mask, training=True)
    else:
        outputs = _compiled_call(layer)(inputs, mask, context, context_mask)
    if isinstance(outputs, tuple):
        outputs, mask = outputs
    elif getattr(layer, "reads", None) == "encoded":
        mask = None
    return ops.convert_to_numpy(outputs), None if mask is None else ops.convert_to_numpy(mask)
