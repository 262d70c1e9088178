"""Checkpoints: all that a run needs to go on as if it had never stopped."""

import contextlib
import errno
import json
import os
import pathlib
import zipfile

import numpy as np

from multimodel.errors import UserError
from multimodel.training.adam import adam_of

# What Keras optimizers keep for each weight.
SLOTS = ("_momentums", "_velocities", "_model_variables_moving_average", "_accumulated_gradients")
KEEP = 2  # the newest ones; the best one is kept besides


class NotFiniteError(ArithmeticError):
    """A value of the state is infinite or no number; nothing was written."""


def state_of(model):
    """`{name: variable}` of all that training changes in a compiled model.

    Weights and random seeds are named by their part of the model and their place in it, the optimizer's moments by
    the weight that they belong to: whatever is added to the model elsewhere does not move them.
    """
    state: dict = {}
    for part in ("body", *model.part_names()):
        state |= {f"{part}/{i}": variable for i, variable in enumerate(getattr(model, part).variables)}
    state |= {f"load/{block}": counts for block, counts in model.expert_load.counts.items()}
    for metric in model.metrics:
        state |= {f"metrics/{metric.name}/{i}": variable for i, variable in enumerate(metric.variables)}
    known = {id(variable) for variable in state.values()}
    state |= {f"model/{variable.name}": variable for variable in model.variables if id(variable) not in known}
    names = {id(variable): name for name, variable in state.items()}
    optimizer = adam_of(model)
    for slot in SLOTS:
        moments = getattr(optimizer, slot, None) or []
        for variable, moment in zip(optimizer._trainable_variables, moments, strict=False):
            state[f"{slot.strip('_')}/{names[id(variable)]}"] = moment
    state["adam/iteration"] = optimizer._iterations
    known = {id(variable) for variable in state.values()}
    rest = [variable for variable in model.optimizer.variables if id(variable) not in known]
    return state | {f"optimizer/{i}-{variable.name}": variable for i, variable in enumerate(rest)}


class Checkpoints:
    """The files of a run's folder `checkpoints/`: one `.npz` each, there as a whole or not at all.

    A file holds the arrays of `state_of`, `vocabulary/NAME` as bytes, and `progress` as JSON. The checksums of its zip
    format tell a damaged one.

    Args:
        folder: made when the first one is written.
    """

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def save(self, step, arrays, progress, best=False):
        """Writes a checkpoint and removes those before the last KEEP.

        Args:
            step: that comes next.
            arrays: `{name: array or variable}`.
            progress: JSON values.
            best: whether it is also to be kept as the best one.

        Raises:
            OSError: if it cannot be written. Those that are there stay.
            NotFiniteError: if a value is infinite or no number.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / f"step-{step:09}.npz"
        draft, link = self.folder / ".draft.npz", self.folder / ".best.npz"
        try:
            with draft.open("wb") as output:
                _write(output, arrays, progress)
                output.flush()
                os.fsync(output.fileno())
            if best:  # before the file that says so is there; another name takes no room
                link.unlink(missing_ok=True)
                os.link(draft, link)
                link.replace(self.folder / "best.npz")
            draft.replace(file)
        finally:
            draft.unlink(missing_ok=True)
        _sync_folder(self.folder)
        for old in self._files()[:-KEEP]:
            old.unlink(missing_ok=True)

    def newest(self, warn):
        """The newest whole checkpoint as a Checkpoint, or None if there never was one.

        Damaged ones are set aside, under a name that ends in `.damaged`, if there is a whole one before them.

        Args:
            warn: is told of each damaged one, in a line.

        Raises:
            UserError: if there are checkpoints, and all are damaged.
        """
        files = self._files()
        damage = {file: _damage(file) for file in files}
        whole = [Checkpoint(file) for file in files if damage[file] is None]
        if files and not whole:
            raise UserError(
                f"A run goes on from a checkpoint that is whole. Received: {str(self.folder)!r}, where all "
                f"{len(files)} are damaged. Train from the beginning with --fresh."
            )
        for file, reason in damage.items():
            if reason is not None:
                warn(f"Checkpoint {file.name} is damaged ({reason}); it is set aside, and a whole one is used.")
                file.rename(file.with_name(f"{file.name}.damaged"))
        return whole[-1] if whole else None

    def best(self):
        """The best checkpoint, or None if none was marked so, or it is damaged."""
        file = self.folder / "best.npz"
        return Checkpoint(file) if file.is_file() and _damage(file) is None else None

    def forget_best(self):
        """Removes the mark of the best one, where scores are no longer comparable."""
        (self.folder / "best.npz").unlink(missing_ok=True)

    def _files(self):
        return sorted(self.folder.glob("step-*.npz"))


class Checkpoint:
    """One checkpoint that is whole.

    Attributes:
        step: that comes next, counted from 0.
        progress: JSON values, as they were saved.
        vocabularies: `{name: bytes}`.
        arrays: `{name: array}`, read from the file one by one.
    """

    def __init__(self, file):
        self.file = file
        self.arrays = np.load(file, allow_pickle=False)
        self.progress = json.loads(self.arrays["progress"].tobytes())
        self.step = self.progress["history"]["step"]
        self.vocabularies = {
            name.removeprefix("vocabulary/"): self.arrays[name].tobytes()
            for name in self.arrays.files
            if name.startswith("vocabulary/")
        }

    def restore(self, state):
        """Gives each variable of `{name: variable}` the value that it had; one that was not there keeps its own."""
        for name in set(state) & set(self.arrays.files):
            values = self.arrays[name]
            if values.shape == tuple(state[name].shape):
                state[name].assign(values)
        for name in set(state) - set(self.arrays.files):
            slot, _, weight = name.partition("/")
            if slot == "model_variables_moving_average":  # an average begins at its weight
                state[name].assign(state[weight])


def _write(output, arrays, progress):
    progress = progress | {"arrays": list(arrays)}
    arrays = arrays | {"progress": np.frombuffer(json.dumps(progress).encode(), "uint8")}
    with zipfile.ZipFile(output, "w") as archive:
        for name, values in arrays.items():  # one at a time: a model may fill most of the memory
            values = np.asarray(values)
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                raise NotFiniteError(name)
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, values, allow_pickle=False)


def _damage(file):
    """Why a file is no whole checkpoint, or None."""
    try:
        with zipfile.ZipFile(file) as archive:
            broken = archive.testzip()
            names = archive.namelist()
            listed = json.loads(np.load(file, allow_pickle=False)["progress"].tobytes())["arrays"]
    except Exception as error:  # zipfile has many ways to say that bits were flipped
        if isinstance(error, OSError) and error.errno in (errno.EIO, errno.EACCES, errno.ESTALE):
            raise  # of the disk, and not of the file
        return str(error) or type(error).__name__
    if broken:
        return f"wrong checksum of {broken}"
    return None if sorted(names) == sorted(f"{name}.npy" for name in [*listed, "progress"]) else "arrays are missing"


def _sync_folder(folder):
    """Makes sure that the names of files outlast a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # not every file system knows that
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
