"""A tiny model of four tasks over all modalities, and features for it."""

import numpy as np

from modality_nets import AudioInputNet, ImageInputNet, LabelOutputNet, TextInputNet, TextOutputNet
from multimodel import Body, MultiModel, Signature
from tests.core.descriptors import mask_of, randomize

DIM, VOCABULARY = 16, 40
N, M = 8, 5


def signature(task, modality, shape, dtype, command, label=False):
    return Signature(
        task=task,
        input_modality=modality,
        input_shape=shape,
        input_dtype=dtype,
        input_net=f"{modality}_input",
        target_modality="label" if label else "text",
        target_length=1 if label else M,
        num_classes=3 if label else VOCABULARY,
        output_net=f"{command}_output" if label else "text_output",
        command=command,
        labels=("a", "b", "c") if label else (),
    )


SIGNATURES = [
    signature("kinds", "image", (32, 32, 3), "uint8", "kinds", label=True),
    signature("captions", "image", (32, 64, 3), "uint8", "english"),
    signature("speech", "audio", (2560,), "float32", "english"),
    signature("english_german", "text", (N,), "int32", "german"),
    signature("german_english", "text", (N,), "int32", "english"),
]


def model(signatures=tuple(SIGNATURES), seed=0, body=None):
    nets = {
        "image_input": ImageInputNet(DIM, filters=(4, 4)),
        "audio_input": AudioInputNet(DIM, 8000, num_mels=8),
        "text_input": TextInputNet(VOCABULARY, DIM),
        "text_output": TextOutputNet(VOCABULARY, DIM),
        "kinds_output": LabelOutputNet(3, DIM),
    }
    used = {name for s in signatures for name in (s.input_net, s.output_net)}
    made = MultiModel(signatures, body or Body.small(DIM), {name: net for name, net in nets.items() if name in used})
    made.build()
    randomize(made, seed)
    return made


def features(rows=3, seed=0):
    """`{task: features}` with rows of different lengths."""
    random = np.random.default_rng(seed)
    batch = {}
    for s in SIGNATURES:
        shape = (rows, *s.input_shape)
        if s.input_dtype == "float32":
            values = {"inputs": random.normal(size=shape).astype("float32")}
        else:
            values = {
                "inputs": random.integers(2, 256 if s.input_dtype == "uint8" else 40, shape).astype(s.input_dtype)
            }
        if s.input_modality != "image":
            values["inputs_mask"] = mask_of(random.integers(1, s.input_shape[0] + 1, rows), s.input_shape[0])
        if s.target_modality == "text":
            targets = random.integers(2, 40, size=(rows, M)).astype("int32")
            values["targets"] = np.where(mask_of(random.integers(1, M + 1, rows), M), targets, 0)
        batch[s.task] = values
    return batch
