"""`load`: a run or an export, by its folder."""

import pathlib

from multimodel.errors import UserError
from multimodel.export.bundle import Bundle
from multimodel.export.exported import Exported, versions_of


def load(path):
    """The trained model of a run's folder as a Bundle, or an export as an Exported: its newest version, or `DIR/N`.

    Raises:
        UserError: if there is none, or it is damaged.
    """
    path = pathlib.Path(path)
    if (path / "saved_model.pb").is_file():
        return Exported(path)
    if not (path / "model").is_dir() and (versions := versions_of(path)):
        return Exported(path / str(versions[-1]))
    return load_run(path)


def load_run(path):
    """The trained model of a run's folder.

    Raises:
        UserError: if there is none, or it is damaged.
    """
    folder = pathlib.Path(path) / "model"
    if not (folder / "model.weights.h5").is_file():
        raise UserError(
            f"A run's folder holds a trained model. Received: {str(path)!r}, without model/. "
            f"Train one: multimodel train quickstart --out {path}"
        )
    try:
        return Bundle.load(folder)
    except (OSError, ValueError, KeyError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"A model's folder is whole. Received: {str(folder)!r} ({type(error).__name__}: {str(error)[:120]}). "
            f"Train it again."
        ) from error
