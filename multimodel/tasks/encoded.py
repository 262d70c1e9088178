"""A task's training examples, encoded: beforehand into the cache or memory, or anew for each batch."""

import functools
import hashlib
import importlib.metadata
import json
import pathlib
import shutil

import numpy as np

from multimodel.tasks.cache import build_folder, cache_folder, showing_progress
from multimodel.tasks.examples import (
    LeftOut,
    Tally,
    bytes_of_an_example,
    encode_rows,
    encoded_parts,
    raw_examples,
)
from multimodel.tasks.features import to_json

FORMAT = 1  # of the cache; a change of what `encode` gives is a new one
LIBRARIES = ("pillow", "soundfile", "soxr", "tensorflow", "tensorflow-text")  # which decode, scale and tokenize
IN_MEMORY = 2**31  # bytes of one task's encoded examples, where they cannot be cached
SHARE_OF_DISK = 0.5  # of what is free, that one task's encoded examples may take


def training_examples(task):
    """The training split, encoded: in the cache, if the source tells its version and the disk has room; else in memory,
    if there is room; else anew for each batch."""
    size = bytes_of_an_example(task) * len(raw_examples(task, "train"))
    key = cache_key(task, "train")
    if key is not None and size <= SHARE_OF_DISK * _free_bytes(cache_folder()):
        return _cached(task, "train", key)
    return LazyExamples(task, "train") if size > IN_MEMORY else encode_examples(task, "train")


def encode_examples(task, split):
    """EncodedExamples of a split, in memory.

    Raises:
        UserError: as `encoded_parts` does.
    """
    arrays, left_out = _fill(task, split, lambda name, shape, dtype: np.zeros(shape, dtype))
    return EncodedExamples({name: functools.partial(np.asarray, array) for name, array in arrays.items()}, left_out)


class EncodedExamples:
    """Examples of one task, encoded beforehand.

    Args:
        arrays: `{name: function that gives the array}` of `inputs`, `targets` and `rows`, which are the usable ones of
            the others; and of `input_lengths` and `target_lengths`, where lengths vary.
        left_out: of the split's rows, a list of LeftOut.

    Attributes:
        left_out: as given.
        cut: how many inputs or targets are longer than their feature takes.
    """

    def __init__(self, arrays, left_out):
        self._arrays, self.left_out = arrays, left_out
        self._rows = np.array(arrays["rows"]())
        too_long = np.zeros(len(self._rows), bool)
        for role in ("input", "target"):
            if f"{role}_lengths" in arrays:
                too_long |= self._take(f"{role}_lengths", slice(None)) > arrays[f"{role}s"]().shape[1]
        self.cut = int(too_long.sum())

    def __len__(self):
        return len(self._rows)

    def arrays(self, rows):
        """`(inputs, input lengths or None, targets, usable)` of some of the examples; here all are usable."""
        lengths = self._take("input_lengths", rows) if "input_lengths" in self._arrays else None
        return self._take("inputs", rows), lengths, self._take("targets", rows), np.ones(len(rows), bool)

    def source_rows(self, rows):
        """Where some of the examples are in the split."""
        return self._rows[rows]

    def _take(self, name, rows):
        # An array in the cache is mapped for this one call: pages of it that were read do not stay with the process.
        return self._arrays[name]()[self._rows[rows]]


class LazyExamples:
    """Examples that are read and encoded when a batch needs them, for data that fits neither into cache nor memory.

    Attributes:
        cut: None, since nobody has counted.
    """

    cut = None

    def __init__(self, task, split):
        self._task, self._split, self._examples = task, split, raw_examples(task, split)
        self._tally = Tally(task, split, len(self._examples))

    def __len__(self):
        return len(self._examples)

    @property
    def left_out(self):
        """Of the rows that were read by now."""
        return list(self._tally.left_out.values())

    def arrays(self, rows):
        """`(inputs, input lengths or None, targets, usable)` of some rows. Those that are left out hold zeros.

        Raises:
            UserError: if more rows are unusable than the task allows.
        """
        part = encode_rows(self._task, self._split, self._examples, rows)
        self._tally.add(part.left_out)
        usable = np.isin(rows, part.rows)

        def spread(values):
            if values is None:
                return None
            whole = np.zeros((len(rows), *values.shape[1:]), values.dtype)
            whole[usable] = values
            return whole

        return spread(part.inputs), spread(part.input_lengths), spread(part.targets), usable

    def source_rows(self, rows):
        """Where some of the examples are in the split."""
        return np.asarray(rows)


def cache_key(task, split):
    """Names everything that encoded examples depend on: the data, the settings of features, and the libraries that
    decode. None if the source does not tell its version."""
    version = task.source.version(split) if hasattr(task.source, "version") else None
    if version is None:
        return None
    digest = hashlib.sha256(
        json.dumps(
            [
                FORMAT,
                type(task.source).__name__,
                version,
                split,
                [to_json(feature) for feature in (task.inputs, task.targets)],
                task.max_unusable,
                [importlib.metadata.version(library) for library in LIBRARIES],
            ]
        ).encode()
    )
    for feature in (task.inputs, task.targets):
        if feature.modality == "text":
            digest.update(feature.vocabulary.save())
    if task.inputs.modality != "text" and getattr(task.source, "folder", ""):
        for state in _states_of_files(task, split):
            digest.update(state)
    return f"{task.name}-{split}-{digest.hexdigest()[:32]}"


def _states_of_files(task, split):
    """Size and time of each file that the examples name."""
    examples = raw_examples(task, split)
    for row in range(len(examples)):
        try:
            value = examples[row].get(task.inputs.field)
            stat = pathlib.Path(task.source.folder, value).stat() if isinstance(value, str) else None
        except (OSError, ValueError):  # a row or a file that cannot be read is found, and told, when it is encoded
            stat = None
        yield f"{row} {stat.st_size} {stat.st_mtime_ns}".encode() if stat else b"-"


def _cached(task, split, key):
    folder = cache_folder() / "encoded" / key

    def whole():
        try:
            manifest = json.loads((folder / "manifest.json").read_text())
            return all((folder / name).stat().st_size == size for name, size in manifest["files"].items())
        except (OSError, ValueError, KeyError):
            return False

    def build(draft):
        def allocate(name, shape, dtype):
            return np.lib.format.open_memmap(draft / f"{name}.npy", "w+", dtype, shape)

        with showing_progress(f"Encoding {task.name} into the cache") as progress:
            arrays, left_out = _fill(task, split, allocate, progress)
        for array in arrays.values():
            if isinstance(array, np.memmap):
                array.flush()
        np.save(draft / "rows.npy", arrays["rows"])
        manifest = {
            "files": {file.name: file.stat().st_size for file in draft.glob("*.npy")},
            "left_out": [vars(one) for one in left_out],
        }
        (draft / "manifest.json").write_text(json.dumps(manifest))

    build_folder(folder, build, whole)
    left_out = json.loads((folder / "manifest.json").read_text())["left_out"]
    arrays = {file.stem: functools.partial(np.load, file, mmap_mode="r") for file in folder.glob("*.npy")}
    return EncodedExamples(arrays, [LeftOut(**one) for one in left_out])


def _fill(task, split, allocate, progress=lambda done, total: None):
    """Encodes a split into arrays of one row for each of the split's; `rows` are the usable ones."""
    total, arrays, rows, left_out = len(raw_examples(task, split)), {}, [], []
    for part in encoded_parts(task, split):
        for name in ("inputs", "input_lengths", "targets", "target_lengths"):
            values = getattr(part, name)
            if values is not None:
                if name not in arrays:
                    arrays[name] = allocate(name, (total, *values.shape[1:]), values.dtype)
                arrays[name][part.rows] = values
        rows.append(part.rows)
        left_out += part.left_out
        progress(sum(map(len, rows)) + len(left_out), total)
    return arrays | {"rows": np.concatenate(rows)}, left_out


def _free_bytes(folder):
    """Free space of the file system that a folder is on, or will be."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free
