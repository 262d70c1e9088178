"""Examples of a task, read and encoded as arrays."""

import dataclasses
import itertools
import math
import pathlib

import numpy as np

from multimodel.errors import MissingDataError, UserError, unknown
from multimodel.tasks.features import UnreadableInputError

CHUNK = 1024  # examples read and encoded at a time, fewer where they take more than CHUNK_BYTES
CHUNK_BYTES = 2**28
IN_MEMORY = 2**31  # bytes of one task's encoded examples, above which they are encoded anew for each batch
SAMPLE = 10_000  # examples that stand for a split that is not in memory, where it is only looked over


@dataclasses.dataclass(frozen=True)
class EncodedExamples:
    """Examples of one task as arrays.

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

    def arrays(self, rows):
        """`(inputs, input lengths or None, targets)` of some rows."""
        lengths = None if self.input_lengths is None else self.input_lengths[rows]
        return self.inputs[rows], lengths, self.targets[rows]


class LazyExamples:
    """Examples that are read and encoded when a batch needs them, for data that does not fit into memory.

    Attributes:
        cut: None, since nobody has counted.
    """

    cut = None

    def __init__(self, task, examples):
        self._task, self._examples = task, examples

    def __len__(self):
        return len(self._examples)

    def arrays(self, rows):
        """`(inputs, input lengths or None, targets)` of some rows."""
        part = _encode(self._task, [self._examples[int(row)] for row in rows], rows)
        return part.inputs, part.input_lengths, part.targets


def require_data(tasks):
    """Raises a MissingDataError that says, for each task whose data is not there, what to get and where to put it."""
    messages = {}
    for name, task in tasks.items():
        message = task.source.missing() if hasattr(task.source, "missing") else None
        if message:
            messages[name] = f"Task {name!r}: {message}"
    if messages:
        others = [name for name in tasks if name not in messages]
        hint = [f"The others can be trained alone: --tasks {','.join(others)}"] if others else []
        raise MissingDataError([*messages.values(), *hint])


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


def sampled_field(task, feature, split):
    """Canonical values of one field of a split: of all its examples, or, if they must be read from somewhere, of
    SAMPLE of them, evenly spread."""
    examples = raw_examples(task, split)
    size = len(examples) if isinstance(examples, list) else min(SAMPLE, len(examples))
    rows = np.linspace(0, len(examples) - 1, size).astype(int).tolist()
    return [read_field(task, feature, row, examples[row]) for row in rows]


def training_examples(task):
    """The training split, encoded beforehand if it fits into IN_MEMORY bytes."""
    examples = raw_examples(task, "train")
    large = _bytes_of_an_example(task) * len(examples) > IN_MEMORY
    return LazyExamples(task, examples) if large else encode_examples(task, "train")


def _bytes_of_an_example(task):
    return math.prod(task.inputs.shape) * np.dtype(task.inputs.dtype).itemsize + 4 * task.targets.max_length


def encode_examples(task, split, limit=None):
    """Reads and encodes the examples of a split, `limit` at most.

    Raises:
        UserError: if there is no such split, no example, a field is missing, or a value cannot be read; the message
            names task, field and example.
    """
    parts = list(encoded_parts(task, split, limit))

    def joined(name):
        columns = [getattr(part, name) for part in parts]
        if columns[0] is None:
            return None
        return list(itertools.chain(*columns)) if isinstance(columns[0], list) else np.concatenate(columns)

    return EncodedExamples(
        joined("inputs"),
        joined("input_lengths"),
        joined("targets"),
        joined("raw_inputs"),
        joined("raw_targets"),
        sum(part.cut for part in parts),
    )


def encoded_parts(task, split, limit=None):
    """Yields the examples of a split as EncodedExamples of at most CHUNK, so that no more are in memory at once.

    Raises:
        UserError: as `encode_examples` does.
    """
    examples = raw_examples(task, split)
    size = len(examples) if limit is None else min(limit, len(examples))
    chunk = max(1, min(CHUNK, CHUNK_BYTES // _bytes_of_an_example(task)))
    for start in range(0, size, chunk):
        rows = range(start, min(start + chunk, size))
        yield _encode(task, [examples[row] for row in rows], rows)


def _encode(task, examples, rows):
    """EncodedExamples of some raw ones; `rows` are their places in the split, for messages."""
    inputs, input_lengths, raw_inputs = _encode_column(task, task.inputs, examples, rows)
    targets, target_lengths, raw_targets = _encode_column(task, task.targets, examples, rows)
    too_long = np.zeros(len(examples), bool)
    for arrays, lengths in ((inputs, input_lengths), (targets, target_lengths)):
        if lengths is not None:
            too_long |= lengths > arrays.shape[1]
    shown = raw_inputs if task.inputs.modality == "text" else None
    return EncodedExamples(inputs, input_lengths, targets, shown, raw_targets, int(too_long.sum()))


def _encode_column(task, feature, examples, rows):
    """One feature of some examples: `(arrays, lengths or None, canonical values)`."""
    values = [read_field(task, feature, row, example) for row, example in zip(rows, examples, strict=True)]
    arrays, lengths = feature.encode(values)
    return np.asarray(arrays), None if lengths is None else np.asarray(lengths), values


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
