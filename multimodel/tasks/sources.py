"""Sources: where raw examples come from. No preprocessing happens here."""

import json
import pathlib
from typing import Protocol

from multimodel.errors import UserError


class Source(Protocol):
    """Raw examples by split.

    `splits` are the names of the splits, `"train"` among them; `examples(split)` is a sequence of dicts
    `{field: raw value}`, in an order that never changes. A source whose data a user must get also has `missing()`:
    None, or one line that says what to get and where to put it.
    """

    @property
    def splits(self) -> tuple[str, ...]: ...

    def examples(self, split): ...


class ArraySource:
    """Examples that are in memory.

    Args:
        splits: `{split: {field: sequence}}`; the fields of a split have one length.

    Raises:
        UserError: if the fields of a split differ in length.
    """

    def __init__(self, splits):
        for split, columns in splits.items():
            lengths = {field: len(column) for field, column in columns.items()}
            if len(set(lengths.values())) != 1:
                raise UserError(
                    f"The fields of a split have one length. Received: {lengths} for split {split!r}. "
                    f"Give every example every field."
                )
        self._columns = splits
        self.splits = tuple(splits)

    def examples(self, split):
        columns = self._columns[split]
        rows = zip(*columns.values(), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in rows]


class JsonlSource:
    """A file with one JSON object a line, or one file for each split.

    Args:
        path: of the file; its examples are shared out to the splits by `held_out`.
        held_out: `{split: share}` of the examples that training does not see, spread evenly over the lines. Equal
            lines are not looked for: remove them before.
        splits: `{split: path}` instead of `path`, where the splits are files of their own.

    Attributes:
        folder: where relative paths of images and clips start: beside the (first) file.

    Raises:
        UserError: if a file is missing or a line is no JSON object; the message names file and line.
    """

    def __init__(self, path=None, held_out=None, splits=None):
        if (path is None) == (splits is None):
            raise UserError(f"Give one of path and splits. Received: path={path!r}, splits={splits!r}.")
        self._held_out = {"test": 0.1} if held_out is None else held_out
        self._paths = {split: pathlib.Path(file) for split, file in (splits or {}).items()}
        self._path = pathlib.Path(path) if path is not None else None
        self.folder = (self._path or next(iter(self._paths.values()))).parent
        self.splits = tuple(self._paths) or ("train", *self._held_out)

    def examples(self, split):
        if self._path is None:
            return _read_lines(self._paths[split])
        examples = _read_lines(self._path)
        return [example for i, example in enumerate(examples) if self._split_of(i) == split]

    def _split_of(self, index):
        """Multiples of the golden ratio fill the unit interval evenly; each held-out split owns a piece of it."""
        place, end = index * 0.6180339887498949 % 1, 0.0
        for split, share in self._held_out.items():
            end += share
            if place < end:
                return split
        return "train"


def _read_lines(path):
    if not path.is_file():
        raise UserError(f"A JSONL source reads a file. Received: path={str(path)!r}, which is no file.")
    examples = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                example = json.loads(line)
            except ValueError as error:
                raise UserError(f"{path}, line {number}: not JSON ({error}).") from None
            if not isinstance(example, dict):
                raise UserError(f"{path}, line {number}: each line is a JSON object. Received: {line.strip()[:60]}")
            examples.append(example)
    return examples
