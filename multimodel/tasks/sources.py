"""Sources: where raw examples come from. No preprocessing happens here."""

import collections.abc
from typing import Protocol

import numpy as np

from multimodel.errors import UserError


class Source(Protocol):
    """Raw examples by split.

    `splits` are the names of the splits, `"train"` among them; `examples(split)` is a sequence of dicts
    `{field: raw value}`, in an order that never changes. An example that lacks a field, or has None there, is not for
    the tasks that need it. Indexing raises an UnreadableInputError for a row that is broken. A sequence may have a
    method `where(row)`, which tells the file and line of a row.

    A source may also have

    - `folder`: where relative paths of pictures and clips start;
    - `missing()`: None, or one line that says what a user must get and where to put it;
    - `version(split)`: a str that changes whenever the examples do (files that are named in examples apart). The
      encoded examples of a source without one are not kept from run to run.
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
                    f"Give every example every field; None where it has no value."
                )
        self._columns = splits
        self.splits = tuple(splits)

    def examples(self, split):
        columns = self._columns[split]
        rows = zip(*columns.values(), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in rows]


class HeldOut:
    """Shares the rows of one list out to splits, evenly over the list.

    Multiples of the golden ratio fill the unit interval evenly; each held-out split owns a piece of it, and training
    the rest.

    Args:
        shares: `{split: share}` of the rows that training does not see.

    Raises:
        UserError: if the shares leave nothing for training, or one of them is named "train".
    """

    def __init__(self, shares):
        if "train" in shares or not all(0 < share < 1 for share in shares.values()) or sum(shares.values()) >= 1:
            raise UserError(
                f"held_out gives the shares of splits other than train, together below 1. Received: {shares!r}."
            )
        self._shares = shares
        self.splits = ("train", *shares)

    def rows(self, split, size):
        """The rows of a split, of `size` in all."""
        ends = np.cumsum([0.0, *self._shares.values()])
        places = np.arange(size) * 0.6180339887498949 % 1
        number = self.splits.index(split) - 1
        held_out = (places >= ends[number]) & (places < ends[number + 1])
        return np.flatnonzero(places >= ends[-1] if split == "train" else held_out).tolist()


class Selection(collections.abc.Sequence):
    """Some rows of a sequence of examples, without reading them."""

    def __init__(self, examples, rows):
        self._examples, self._rows = examples, rows

    def __len__(self):
        return len(self._rows)

    def __getitem__(self, row):
        return self._examples[self._rows[row]]

    def where(self, row):
        return self._examples.where(self._rows[row]) if hasattr(self._examples, "where") else f"row {self._rows[row]}"
