"""Datasets of tensorflow-datasets, read in random access."""

import collections.abc
import logging
import pathlib

import numpy as np

from multimodel.errors import UserError, unknown


class TfdsSource:
    """A dataset of tensorflow-datasets that has been prepared on this machine; nothing is downloaded.

    Field names are those of the dataset, with `/` inside nested ones (`captions/text`). Labels come as their names,
    pictures as encoded bytes, text and sound as they are.

    Args:
        name: as in the catalogue, with its config: `"wmt14_translate/de-en"`.
        splits: `{split: TFDS split or slice}`, such as `{"train": "train[:90%]", "test": "train[90%:]"}`. By default
            the dataset's own; where there is no test split its validation split serves as one, and where there is
            neither, the last tenth of the training split.
        fields: names of the fields to read, or `{name to give it: field}`; all if None.
        data_dir: TFDS' folder of prepared data; its own default if None.

    Raises:
        UserError: when examples are read, if there is no such dataset or split, or it is not prepared.
    """

    def __init__(self, name, splits=None, fields=None, data_dir=None):
        self.name, self.data_dir, self._splits = name, data_dir, splits
        self._fields = dict(zip(fields, fields, strict=True)) if isinstance(fields, list | tuple) else fields

    @property
    def splits(self):
        return tuple(self._split_map())

    def examples(self, split):
        message = self.missing()
        if message:
            raise UserError(message)
        return _Examples(self._open(split), self._builder().info.features, self._fields)

    def version(self, split):
        """Changes with the dataset's version, its folder, and the split and fields that are read."""
        info = self._builder().info
        description = pathlib.Path(info.data_dir, "dataset_info.json")
        if not description.is_file():  # so it is with TFDS' fake data
            return None
        built = description.stat().st_mtime_ns
        return f"{info.full_name} {info.data_dir} {built} {self._split_map()[split]} {self._fields}"

    def labels(self, field):
        """The names of a label field's classes, in order. They are known before the data is prepared."""
        features = self._builder().info.features
        if field not in features:
            raise unknown("field", field, features)
        return tuple(features[field].names)

    def missing(self):
        """None if the data is there, or one line that says how to get it."""
        if not self.splits:  # a dataset that is not prepared does not know its own
            return self._advice(self._builder())
        try:
            for split in self.splits:
                self._open(split)
        except (AssertionError, NotImplementedError):  # TFDS' own: nothing there, or not in a format of random access
            return self._advice(self._builder())
        except ValueError as error:
            reason = " ".join(str(error).split())[:200]
            raise UserError(
                f"A split is one of the dataset's, or a slice of one. "
                f"Received: {self._splits!r} for {self.name} ({reason})."
            ) from None
        return None

    def _advice(self, builder):
        """What to do about a dataset that cannot be opened."""
        where = f" --data_dir {self.data_dir}" if self.data_dir else ""
        if builder.is_prepared():
            return (
                f"Examples are read in random access. Received: {self.name} in {builder.data_dir}, prepared as "
                f"{builder.info.file_format.value}. Convert it: tfds convert_format --dataset_dir={builder.data_dir} "
                f"--out_file_format=array_record, or prepare it anew into another data_dir."
            )
        manual = " ".join((builder.MANUAL_DOWNLOAD_INSTRUCTIONS or "").split())
        manual = f" What TFDS cannot download goes into its downloads/manual first: {manual}" if manual else ""
        return (
            f"{self.name} of tensorflow-datasets must be prepared. Received: nothing in {builder.data_dir}. "
            f"Run: tfds build {self.name} --file_format=array_record{where}.{manual}"
        )

    def _split_map(self):
        if self._splits is not None:
            return self._splits
        splits = {split: split for split in self._builder().info.splits or ()}
        if "test" not in splits and "validation" in splits:
            splits["test"] = "validation"
        elif "test" not in splits and "train" in splits:
            splits |= {"train": "train[:90%]", "test": "train[90%:]"}
        return splits

    def _open(self, split):
        """TFDS' own random access to a split."""
        return self._builder().as_data_source(split=self._split_map()[split], decoders=self._decoders())

    def _decoders(self):
        """Leaves pictures as encoded bytes: who reads captions alone need not decode them."""
        import tensorflow_datasets as tfds

        features = self._builder().info.features.items()
        pictures = [field for field, feature in features if isinstance(feature, tfds.features.Image)]
        return dict.fromkeys(pictures, tfds.decode.SkipDecoding())

    def _builder(self):
        import tensorflow_datasets as tfds

        logging.getLogger("absl").setLevel(logging.ERROR)  # TFDS warns of every folder that is not there
        try:
            return tfds.builder(self.name, data_dir=self.data_dir)
        except tfds.core.DatasetNotFoundError:
            raise unknown("dataset", self.name, tfds.list_builders()) from None
        except ValueError as error:
            raise UserError(
                f"A TfdsSource names a dataset and its config. Received: name={self.name!r} "
                f"({' '.join(str(error).split())[:200]})."
            ) from None


class FlattenedSource:
    """One example for each element of a field that holds several, as a picture has captions.

    Example `i` is example `i // count` of the source, with element `i % count` of the field; an example with fewer
    elements repeats them.

    Args:
        source: a Source.
        field: holds a sequence.
        count: elements taken of each example.

    An example without any element has None in its place.
    """

    def __init__(self, source, field, count):
        self._source, self._field, self._count = source, field, count
        self.folder = getattr(source, "folder", "")

    @property
    def splits(self):
        return self._source.splits

    def missing(self):
        return self._source.missing() if hasattr(self._source, "missing") else None

    def version(self, split):
        inner = self._source.version(split) if hasattr(self._source, "version") else None
        return None if inner is None else f"{inner} {self._field} {self._count}"

    def examples(self, split):
        return _Flattened(self._source.examples(split), self._field, self._count)


class _Examples(collections.abc.Sequence):
    """Examples of TFDS as flat dicts of plain values."""

    def __init__(self, data, features, fields):
        self._data, self._features, self._fields = data, features, fields

    def __len__(self):
        return len(self._data)

    def __getitem__(self, row):
        if not 0 <= row < len(self):
            raise IndexError(row)
        flat: dict = {}
        for field, value in self._data[row].items():
            if isinstance(value, dict):
                flat |= {f"{field}/{name}": _plain(inner) for name, inner in value.items()}
            elif hasattr(self._features[field], "int2str"):
                flat[field] = self._features[field].int2str(int(value))
            else:
                flat[field] = _plain(value)
        if self._fields is None:
            return flat
        for field in self._fields.values():
            if field not in flat:
                raise unknown("field", field, flat)
        return {name: flat[field] for name, field in self._fields.items()}


class _Flattened(collections.abc.Sequence):
    def __init__(self, examples, field, count):
        self._examples, self._field, self._count = examples, field, count

    def __len__(self):
        return len(self._examples) * self._count

    def __getitem__(self, row):
        if not 0 <= row < len(self):
            raise IndexError(row)
        example = self._examples[row // self._count]
        elements = example.get(self._field)
        elements = () if elements is None else elements
        return example | {self._field: elements[row % self._count % len(elements)] if len(elements) else None}


def _plain(value):
    """Scalars and strings as Python's own; arrays of numbers as they are."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return _plain(value.item())
    if isinstance(value, list) or (isinstance(value, np.ndarray) and value.dtype.kind in "OSU"):
        return [_plain(element) for element in value]
    return value
