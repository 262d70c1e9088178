"""Examples of a task, read and encoded a part of a split at a time.

A row that cannot be read is unusable: it is left out and listed, and too many of them are an error. A row that lacks
one of the task's fields is for other tasks, and a row that is too long for a feature that refuses it is not used
either; these two are counted.
"""

import collections
import concurrent.futures
import dataclasses
import math
import os
import pathlib

import numpy as np

from multimodel.errors import MissingDataError, UserError, unknown
from multimodel.tasks.features import UnreadableInputError, vocabularies_of

CHUNK = 1024  # examples read and encoded at a time, fewer where they take more than CHUNK_BYTES
CHUNK_BYTES = 2**26
SAMPLE = 10_000  # examples that stand for a split of pictures or clips, where it is only looked over
UNUSABLE, INCOMPLETE, TOO_LONG = "unusable", "incomplete", "too long"


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """A row that a task does not use.

    Attributes:
        row: its place in the split.
        kind: UNUSABLE, INCOMPLETE or TOO_LONG.
        path: the file that is at fault, or where the example stands.
        field: of the example, or None where the whole example cannot be read.
        reason: one line.
    """

    row: int
    kind: str
    path: str
    field: str | None
    reason: str


class LeftOutError(Exception):
    """Carries the LeftOut of a row."""

    def __init__(self, left_out):
        super().__init__(left_out.reason)
        self.left_out = left_out


@dataclasses.dataclass(frozen=True)
class EncodedPart:
    """Usable examples of some rows, as arrays.

    Attributes:
        rows: `(examples,)`, their places in the split.
        inputs: `(examples, ...)`.
        input_lengths: `(examples,)` before cutting, or None where no length varies.
        targets: `(examples, m)`; 0 is padding in text.
        target_lengths: as those of the inputs.
        raw_inputs: canonical values of text, to show beside predictions; None for pictures and sound.
        raw_targets: canonical values of all targets.
        left_out: the other rows, a list of LeftOut.
    """

    rows: np.ndarray
    inputs: np.ndarray
    input_lengths: np.ndarray | None
    targets: np.ndarray
    target_lengths: np.ndarray | None
    raw_inputs: list | None
    raw_targets: list
    left_out: list


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
    """Canonical values of one field of a split's readable rows: of all, or, where an example holds a picture or sound
    that must be read too, of SAMPLE of them, evenly spread."""
    examples = raw_examples(task, split)
    looked_over = isinstance(examples, list) or task.inputs.modality == "text"
    size = len(examples) if looked_over else min(SAMPLE, len(examples))
    values = []
    for row in np.linspace(0, len(examples) - 1, size).astype(int).tolist():
        try:
            example = read_row(examples, split, row)
            values.append(read_field(feature, example, row, place_of(examples, split, row), folder_of(task.source)))
        except LeftOutError:
            continue
    return values


def held_out_inputs(tasks, split="test", count=100):
    """`{task: canonical input values}` of a split's first readable rows, `count` of them at most."""
    return {name: _first_inputs(task, split, count) for name, task in tasks.items()}


def _first_inputs(task, split, count):
    examples, folder = raw_examples(task, split), folder_of(task.source)
    values: list = []
    for row in range(len(examples)):
        if len(values) == count:
            break
        try:
            example = read_row(examples, split, row)
            values.append(read_field(task.inputs, example, row, place_of(examples, split, row), folder))
        except LeftOutError:
            continue
    return values


def train_vocabularies(tasks):
    """Trains each vocabulary that is not yet trained on the training text of all features that share it.

    Args:
        tasks: `{name: Task}`.
    """
    features = [(task, feature) for task in tasks.values() for feature in (task.inputs, task.targets)]
    for vocabulary in vocabularies_of([feature for _, feature in features]):
        if not vocabulary.trained:
            vocabulary.train(
                [
                    text
                    for task, feature in features
                    if getattr(feature, "vocabulary", None) is vocabulary
                    for text in sampled_field(task, feature, "train")
                ]
            )


def bytes_of_an_example(task):
    """The size of an encoded example."""
    return math.prod(task.inputs.shape) * np.dtype(task.inputs.dtype).itemsize + 4 * task.targets.max_length


def encoded_parts(task, split, limit=None):
    """Yields the examples of a split as EncodedParts, no more than a few of which are in memory at once.

    Raises:
        UserError: if there is no such split, no example, no row with all fields, or more unusable rows than
            `task.max_unusable` allows; the message names task, field and example.
    """
    examples = raw_examples(task, split)
    size = len(examples) if limit is None else min(limit, len(examples))
    chunk = max(1, min(CHUNK, CHUNK_BYTES // bytes_of_an_example(task)))
    chunks = [range(start, min(start + chunk, size)) for start in range(0, size, chunk)]
    tally = Tally(task, split, size)
    for part in in_threads(lambda rows: encode_rows(task, split, examples, rows), chunks):
        tally.add(part.left_out)
        yield part
    tally.finish()


class Tally:
    """Counts rows that are left out of a split, and says when they are too many.

    Args:
        task, split: whose rows.
        size: rows that are looked at, in all.
    """

    def __init__(self, task, split, size):
        self._task, self._split, self._size = task, split, size
        self.left_out: dict[int, LeftOut] = {}

    def add(self, left_out):
        """Raises a UserError if more rows than allowed are unusable by now."""
        self.left_out |= {one.row: one for one in left_out}
        bad = [one for one in self.left_out.values() if one.kind == UNUSABLE]
        if len(bad) > self._task.max_unusable * self._size:
            raise UserError(
                f"{_place(self._task, bad[0])}: {bad[0].reason}. "
                f"Received: {len(bad)} unusable of {self._size} examples in split {self._split!r}, more than "
                f"max_unusable={self._task.max_unusable} of the task allows. `multimodel check` lists them all."
            )

    def finish(self):
        """Raises a UserError if no row is left."""
        if len(self.left_out) == self._size:
            first = next(iter(self.left_out.values()))
            raise UserError(
                f"A task needs examples that it can use. Received: none among {self._size} of split {self._split!r}. "
                f"{_place(self._task, first)}: {first.reason}."
            )


def _place(task, left_out):
    shown = f" ({left_out.path!r})" if not left_out.path.endswith(f"[{left_out.row}]") else ""
    field = f", field {left_out.field!r}" if left_out.field else ""
    return f"Task {task.name!r}{field}, example {left_out.row}{shown}"


def encode_rows(task, split, examples, rows):
    """An EncodedPart of some rows."""
    kept, inputs, targets, left_out, folder = [], [], [], [], folder_of(task.source)
    for row in map(int, rows):
        place = place_of(examples, split, row)
        try:
            example = read_row(examples, split, row)
            target, value = (read_field(f, example, row, place, folder) for f in (task.targets, task.inputs))
        except LeftOutError as error:
            left_out.append(error.left_out)
            continue
        kept.append(row)
        targets.append(target)
        # Pictures and clips at once, so that no more than one of them is in memory at its own size.
        inputs.append(value if task.inputs.modality == "text" else _encode(task.inputs, [value]))
    if not kept:
        return _nothing(task, left_out)
    arrays, lengths = _encode(task.inputs, inputs) if task.inputs.modality == "text" else _joined(inputs)
    target_arrays, target_lengths = _encode(task.targets, targets)
    part = EncodedPart(
        np.array(kept),
        arrays,
        lengths,
        target_arrays,
        target_lengths,
        inputs if task.inputs.modality == "text" else None,
        targets,
        left_out,
    )
    return _without_refused(task, part, [place_of(examples, split, row) for row in kept])


def folder_of(source):
    """Where relative paths in a source's examples start."""
    return getattr(source, "folder", "")


def place_of(examples, split, row):
    """Where a row stands: the file, and the line, if its source knows; else `split[row]`."""
    return examples.where(row) if hasattr(examples, "where") else f"{split}[{row}]"


def read_row(examples, split, row):
    """The raw example of a row; raises a LeftOutError if the source cannot read it."""
    try:
        return examples[row]
    except UnreadableInputError as error:
        raise LeftOutError(LeftOut(row, UNUSABLE, place_of(examples, split, row), None, str(error))) from None


def read_field(feature, example, row, path, folder, examine=False):
    """The canonical value of one field of a raw example; with `examine`, also what is odd about it.

    Args:
        row, path: the example's place, for a LeftOut.
        folder: where relative paths of pictures and clips start.

    Raises:
        LeftOutError: if the example has no such field, or its value cannot be read.
    """
    value = example.get(feature.field)
    if value is None:
        reason = f"every example has the field {feature.field!r}. Received: example {row} with {sorted(example)}"
        raise LeftOutError(LeftOut(row, INCOMPLETE, path, None, reason))
    if isinstance(value, str) and feature.modality in ("image", "audio"):
        path = value = str(pathlib.Path(folder, value))
    try:
        return feature.examine(value) if examine else feature.read(value)
    except UnreadableInputError as error:
        raise LeftOutError(LeftOut(row, UNUSABLE, path, feature.field, str(error))) from None


def _encode(feature, values):
    arrays, lengths = feature.encode(values)
    return np.asarray(arrays), None if lengths is None else np.asarray(lengths)


def _joined(parts):
    """`(arrays, lengths or None)` of several such pairs."""
    arrays, lengths = zip(*parts, strict=True)
    return np.concatenate(arrays), None if lengths[0] is None else np.concatenate(lengths)


def _nothing(task, left_out):
    """The EncodedPart of no row."""

    def lengths(feature):
        return None if feature.modality in ("image", "label") else np.zeros(0, "int32")

    inputs = np.zeros((0, *task.inputs.shape), task.inputs.dtype)
    targets = np.zeros((0, task.targets.max_length), "int32")
    raw_inputs: list | None = [] if task.inputs.modality == "text" else None
    rows = np.zeros(0, int)
    return EncodedPart(rows, inputs, lengths(task.inputs), targets, lengths(task.targets), raw_inputs, [], left_out)


def _without_refused(task, part, places):
    """The part without the rows that are longer than a feature that does not cut them."""
    kept, left_out = np.ones(len(part.rows), bool), list(part.left_out)
    for feature, lengths in ((task.inputs, part.input_lengths), (task.targets, part.target_lengths)):
        refused = feature.refused(lengths)
        if refused is False:
            continue
        for i in np.flatnonzero(refused & kept):
            reason = f"too long. Received: {lengths[i]}, of {feature.shape[0]} at most"
            left_out.append(LeftOut(int(part.rows[i]), TOO_LONG, places[i], feature.field, reason))
        kept &= ~refused
    if kept.all():
        return part

    def chosen(values):
        if values is None:
            return None
        return [v for v, keep in zip(values, kept, strict=True) if keep] if isinstance(values, list) else values[kept]

    fields = [f.name for f in dataclasses.fields(part) if f.name != "left_out"]
    return EncodedPart(**{name: chosen(getattr(part, name)) for name in fields}, left_out=left_out)


def in_threads(function, items):
    """`map` in as many threads as there are processors, never far ahead of what is taken; results come in order.

    Decoders and tokenizers release Python's lock; processes would each take seconds to import TensorFlow.
    """
    threads = os.cpu_count() or 1
    pending: collections.deque = collections.deque()
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                pending.append(pool.submit(function, item))
                if len(pending) > threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
