"""Sources that are files of rows: JSON lines and CSV."""

import collections.abc
import csv
import hashlib
import json
import os
import pathlib
from typing import Any

from multimodel.errors import UserError
from multimodel.tasks.features import UnreadableInputError
from multimodel.tasks.sources import HeldOut, Selection

UTF8_SIGN = b"\xef\xbb\xbf"
OTHER_SIGNS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"PK": "a ZIP archive", b"\x1f\x8b": "gzip"}


class _TableSource:
    """A file of rows that are shared out to splits, or one file for each split."""

    _open: Any  # from the path of a file to the sequence of its rows

    def __init__(self, path=None, held_out=None, splits=None):
        if (path is None) == (splits is None):
            raise UserError(f"Give one of path and splits. Received: path={path!r}, splits={splits!r}.")
        self._paths = {split: pathlib.Path(file) for split, file in (splits or {}).items()}
        self._path = pathlib.Path(path) if path is not None else None
        self._held_out = HeldOut({"test": 0.1} if held_out is None else held_out)
        self.folder = (self._path or next(iter(self._paths.values()))).parent
        self.splits = tuple(self._paths) or self._held_out.splits

    def examples(self, split):
        """The rows of a split, in the order of the file."""
        rows = self._open(self._file(split))
        return rows if self._path is None else Selection(rows, self._held_out.rows(split, len(rows)))

    def version(self, split):
        """Changes with the content of the file."""
        with self._file(split).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def _file(self, split):
        path = self._path or self._paths[split]
        if not path.is_file():
            raise UserError(f"{type(self).__name__} reads a file. Received: path={str(path)!r}, which is no file.")
        with path.open("rb") as file:
            start = file.read(3)
        for sign, kind in OTHER_SIGNS.items():
            if start.startswith(sign):
                raise UserError(
                    f"{type(self).__name__} reads UTF-8 text. Received: path={str(path)!r}, which is {kind}. "
                    f"Convert it."
                )
        return path


class JsonlSource(_TableSource):
    """A file with one JSON object a line, or one such file for each split.

    Args:
        path: of the file; its rows are shared out to the splits by `held_out`.
        held_out: `{split: share}` of the rows that training does not see, spread evenly over the file; a tenth for
            "test" by default. Equal rows are not looked for: `multimodel check` finds them.
        splits: `{split: path}` instead of `path`, where the splits are files of their own.

    Attributes:
        folder: where relative paths of pictures and clips start: beside the (first) file.

    Raises:
        UserError: when examples are read, if a file is missing or no such table. A row that is broken is told when it
            is read, with file and line.
    """

    def _open(self, path):
        return _JsonLines(path)


class CsvSource(_TableSource):
    """Comma-separated values, with the names of the fields in the first line. An empty cell is a field without a value.

    Args:
        path, held_out, splits: as for a JsonlSource.
        delimiter: between cells; a tab for files named `.tsv`, else a comma, if None.

    Raises:
        UserError: as a JsonlSource does; and if the first line names no field, or one twice.
    """

    def __init__(self, path=None, held_out=None, splits=None, delimiter=None):
        super().__init__(path, held_out, splits)
        self._delimiter = delimiter

    def _open(self, path):
        return _CsvRows(path, self._delimiter or ("\t" if path.suffix == ".tsv" else ","))

    def version(self, split):
        return f"{super().version(split)} {self._delimiter!r}"


class _JsonLines(collections.abc.Sequence):
    """The objects of a file, each read from it when it is asked for; empty lines are none."""

    def __init__(self, path):
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY)
        self._lines = []  # (number, start, size)
        with path.open("rb") as lines:
            start = 0
            for number, line in enumerate(lines, 1):
                if line.strip():
                    self._lines.append((number, start, len(line)))
                start += len(line)

    def __del__(self):
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)

    def __len__(self):
        return len(self._lines)

    def where(self, row):
        return f"{self._path}, line {self._lines[row][0]}"

    def __getitem__(self, row):
        _, start, size = self._lines[row]
        line = os.pread(self._descriptor, size, start)  # safe in several threads
        try:
            example = json.loads(line.removeprefix(UTF8_SIGN) if start == 0 else line)
        except ValueError as error:
            raise UnreadableInputError(f"not JSON ({error})") from None
        if not isinstance(example, dict):
            shown = line.decode("utf-8", "replace").strip()[:60]
            raise UnreadableInputError(f"each line is a JSON object. Received: {shown}")
        return example


class _CsvRows(collections.abc.Sequence):
    """The rows of a file, in memory as they stand there."""

    def __init__(self, path, delimiter):
        self._path, self._rows = path, []
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            reader = csv.reader(file, delimiter=delimiter)
            try:
                self._fields = next(reader, [])
                for cells in reader:
                    if cells:
                        self._rows.append((reader.line_num, cells))
            except csv.Error as error:
                raise UserError(f"{path}, line {reader.line_num}: not CSV ({error}). Mend the line.") from None
        if not any(self._fields) or len(set(self._fields)) < len(self._fields):
            raise UserError(
                f"The first line of a CSV file names each field once. Received: {self._fields} in {str(path)!r}."
            )

    def __len__(self):
        return len(self._rows)

    def where(self, row):
        return f"{self._path}, line {self._rows[row][0]}"

    def __getitem__(self, row):
        _, cells = self._rows[row]
        if len(cells) != len(self._fields):
            raise UnreadableInputError(f"{len(cells)} cells, where the first line has {len(self._fields)}")
        return {field: cell or None for field, cell in zip(self._fields, cells, strict=True)}
