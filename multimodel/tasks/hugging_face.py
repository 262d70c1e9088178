"""Datasets of Hugging Face's `datasets`."""

import collections.abc
import pathlib

from multimodel.errors import UserError, unknown
from multimodel.tasks.prepared import require_extra
from multimodel.tasks.sources import HeldOut, Selection


class HuggingFaceSource:
    """A dataset of the `datasets` library that is on this machine; nothing is downloaded.

    Fields are its columns. Class labels come as their names, pictures and clips as encoded bytes or paths.

    Args:
        data: a `datasets.DatasetDict`, a `datasets.Dataset`, or the folder that `save_to_disk` of either wrote.
        held_out: `{split: share}` of a single Dataset's rows that training does not see; a tenth for "test" by default.
            The splits of a DatasetDict are its own; a missing test split is taken from its validation split.

    Raises:
        UserError: when examples are read, if the folder holds no such dataset, or `datasets` is not installed.
    """

    def __init__(self, data, held_out=None):
        self._data = data
        self._held_out = HeldOut({"test": 0.1} if held_out is None else held_out)

    @property
    def splits(self):
        data = self._load()
        if not isinstance(data, dict):
            return self._held_out.splits
        return tuple(data) if "test" in data or "validation" not in data else (*data, "test")

    def examples(self, split):
        data = self._load()
        if not isinstance(data, dict):
            return Selection(_Rows(data), self._held_out.rows(split, len(data)))
        return _Rows(data["validation" if split == "test" and "test" not in data else split])

    def labels(self, field):
        """The names of the classes of a label column, in order."""
        data = self._load()
        features = (next(iter(data.values())) if isinstance(data, dict) else data).features
        if field not in features:
            raise unknown("field", field, features)
        return tuple(features[field].names)

    def version(self, split):
        """The library's own fingerprint of the data."""
        data = self._load()
        parts = data.values() if isinstance(data, dict) else [data]
        return " ".join(part._fingerprint for part in parts)

    def _load(self):
        if isinstance(self._data, str | pathlib.PurePath):
            with require_extra("huggingface"):
                import datasets
            try:
                self._data = datasets.load_from_disk(str(self._data))
            except (OSError, ValueError) as error:
                raise UserError(
                    f"A HuggingFaceSource reads what save_to_disk wrote. Received: data={str(self._data)!r} "
                    f"({' '.join(str(error).split())[:200]})."
                ) from None
        return self._data


class _Rows(collections.abc.Sequence):
    def __init__(self, data):
        self._names = {}
        for field, feature in data.features.items():
            kind = type(feature).__name__
            if kind in ("Image", "Audio"):
                data = data.cast_column(field, type(feature)(decode=False))
            elif kind == "ClassLabel":
                self._names[field] = feature.names
        self._data = data

    def __len__(self):
        return len(self._data)

    def __getitem__(self, row):
        example = {field: _encoded(value) for field, value in self._data[row].items()}
        for field, names in self._names.items():
            if example[field] is not None:  # -1 is the library's sign for no label
                example[field] = names[example[field]] if example[field] >= 0 else None
        return example


def _encoded(value):
    """The bytes or the path of a picture or clip that is not decoded; other values as they are."""
    if isinstance(value, dict) and set(value) == {"bytes", "path"}:
        return value["path"] if value["bytes"] is None else value["bytes"]
    return value
