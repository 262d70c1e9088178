"""Examples of a task, read and encoded as arrays."""

import dataclasses
import pathlib

import numpy as np

from multimodel.errors import UserError, unknown
from multimodel.tasks.features import UnreadableInputError

CHUNK = 1024  # examples read and encoded at a time


@dataclasses.dataclass(frozen=True)
class EncodedExamples:
    """The examples of one task and split as arrays.

    Attributes:
        inputs: `(examples, ...)`.
        input_lengths: `(examples,)` before cutting, or None where no length varies.
        targets: `(examples, m)`; 0 is padding in text.
        raw_inputs: canonical values of text, to show beside predictions; None for pictures and sound.
        raw_targets: canonical values of all targets.
        cut: how many inputs or targets are longer than their feature takes.
    """

    inputs: np.ndarray
    input_lengths: np.ndarray | None
    targets: np.ndarray
    raw_inputs: list | None
    raw_targets: list
    cut: int

    def __len__(self):
        return len(self.targets)


def raw_examples(task, split):
    """The examples of a split as the source gives them.

    Raises:
        UserError: if there is no such split, or it is empty.
    """
    if split not in task.source.splits:
        raise unknown("split", split, task.source.splits)
    examples = task.source.examples(split)
    if not len(examples):
        raise UserError(f"A split holds at least one example. Received: 0 in split {split!r} of task {task.name!r}.")
    return examples


def encode_examples(task, split, limit=None):
    """Reads and encodes the examples of a split, `limit` at most.

    Raises:
        UserError: if there is no such split, no example, a field is missing, or a value cannot be read; the message
            names task, field and example.
    """
    examples = raw_examples(task, split)[:limit]
    inputs, input_lengths, raw_inputs = _encode_column(task, task.inputs, examples)
    targets, target_lengths, raw_targets = _encode_column(task, task.targets, examples)
    too_long = np.zeros(len(examples), bool)
    for arrays, lengths in ((inputs, input_lengths), (targets, target_lengths)):
        if lengths is not None:
            too_long |= lengths > arrays.shape[1]
    return EncodedExamples(inputs, input_lengths, targets, raw_inputs or None, raw_targets, int(too_long.sum()))


def _encode_column(task, feature, examples):
    """One feature of all examples: `(arrays, lengths or None, canonical values)`; pictures and sound keep no values.

    By chunks, so that only one of them is in memory both as it was read and as it is encoded.
    """
    lengths, values = [], []
    for start in range(0, len(examples), CHUNK):
        part = [
            read_field(task, feature, i, example) for i, example in enumerate(examples[start : start + CHUNK], start)
        ]
        encoded, sizes = feature.encode(part)
        encoded = np.asarray(encoded)
        if start == 0:
            array = np.empty((len(examples), *encoded.shape[1:]), encoded.dtype)
        array[start : start + len(part)] = encoded
        lengths += [] if sizes is None else [np.asarray(sizes)]
        values += part if feature.modality in ("text", "label") else []
    return array, np.concatenate(lengths) if lengths else None, values


def read_field(task, feature, index, example):
    """The canonical value of one field; a UserError names task, field and example where it cannot be read."""
    if feature.field not in example:
        raise UserError(
            f"Task {task.name!r}: every example has the field {feature.field!r}. "
            f"Received: example {index} with {sorted(example)}."
        )
    value = example[feature.field]
    if feature.modality in ("image", "audio") and isinstance(value, str):
        value = str(pathlib.Path(getattr(task.source, "folder", "")) / value)
    try:
        return feature.read(value)
    except UnreadableInputError as error:
        shown = f" ({value[:80]!r})" if isinstance(value, str) else ""
        raise UserError(f"Task {task.name!r}, field {feature.field!r}, example {index}{shown}: {error}.") from None
