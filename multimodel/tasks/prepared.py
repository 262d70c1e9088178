"""Datasets that are built once into the user's cache folder and read from there ever after."""

import contextlib
import hashlib
import json

import numpy as np

from multimodel.errors import UserError
from multimodel.tasks.cache import build_folder, cache_folder, showing_progress


@contextlib.contextmanager
def require_extra(extra):
    """Turns the failed import of a package into the command that installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UserError(
            f"This data needs packages of the extra {extra!r}. Received: no package {error.name!r}. "
            f"Install them: pip install 'multimodel[{extra}]'"
        ) from None


class PreparedSource:
    """A Source that is built once, whole or not at all, and checked before each use.

    Args:
        name: of the dataset, and of its folder in the cache.
        version: part of the folder's name; a change of what `build` gives is a new version.
        splits: names of the splits.
        build: a function of `progress(done, total)` that returns `{split: {field: column}}`; a column is an array, a
            list of str, or a list of arrays `(length,)` of one dtype.
    """

    def __init__(self, name, version, splits, build):
        self.name, self._version, self.splits, self._build = name, version, tuple(splits), build

    @property
    def _folder(self):
        return cache_folder() / f"{self.name}-{self._version}"

    def examples(self, split):
        self.prepare()
        columns = _load_columns(self._folder / f"{split}.npz")
        rows = zip(*columns.values(), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def version(self, split):
        self.prepare()
        return (self._folder / "manifest.json").read_text()

    def prepare(self):
        """Builds the dataset unless a whole one is there. A damaged one is built again."""
        build_folder(self._folder, self._build_into, self._whole)

    def _build_into(self, draft):
        with showing_progress(f"Building {self.name} into the cache") as progress:
            splits = self._build(progress)
        for split, columns in splits.items():
            np.savez(draft / f"{split}.npz", **_flat_columns(columns))
        sums = {file.name: _checksum(file) for file in sorted(draft.glob("*.npz"))}
        (draft / "manifest.json").write_text(json.dumps({"files": sums}, indent=1))

    def _whole(self):
        if getattr(self, "_checked", False) and self._folder.is_dir():
            return True
        try:
            sums = json.loads((self._folder / "manifest.json").read_text())["files"]
            self._checked = all(_checksum(self._folder / name) == value for name, value in sums.items())
        except (OSError, ValueError, KeyError):
            return False
        return self._checked


def _flat_columns(columns):
    """Lists of strings and of arrays become one flat array and the ends of its pieces."""
    flat = {}
    for field, column in columns.items():
        if isinstance(column, np.ndarray):
            flat[field] = column
            continue
        text = isinstance(column[0], str)
        pieces = [np.frombuffer(piece.encode(), np.uint8) if text else piece for piece in column]
        flat[f"{field}:{'text' if text else 'ragged'}"] = np.concatenate(pieces)
        flat[f"{field}:ends"] = np.cumsum([len(piece) for piece in pieces])
    return flat


def _load_columns(file):
    with np.load(file, allow_pickle=False) as arrays:
        flat = {name: arrays[name] for name in arrays.files}
    columns = {}
    for name, array in flat.items():
        field, _, kind = name.partition(":")
        if not kind:
            columns[field] = array
        elif kind in ("text", "ragged"):
            pieces = np.split(array, flat[f"{field}:ends"][:-1])
            columns[field] = [piece.tobytes().decode() for piece in pieces] if kind == "text" else pieces
    return columns


def _checksum(file):
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
