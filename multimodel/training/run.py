"""A run's folder: what is written there, and when it may be replaced."""

import collections
import importlib.metadata
import json
import pathlib
import platform
import shutil
import tempfile

import keras

from multimodel.errors import UserError
from multimodel.tasks.examples import INCOMPLETE

VERSIONS = ("multimodel", "keras", "tensorflow", "jax", "numpy")
SETTINGS = (
    "steps",
    "batch_size",
    "accumulation_steps",
    "learning_rate",
    "warmup_steps",
    "schedule",
    "ema",
    "betas",
    "epsilon",
    "label_smoothing",
    "clipnorm",
    "lazy_experts",
    "loss_weights",
)
CONTENTS = ("run.json", "metrics.json", "history.jsonl", "left_out.jsonl", "model", "predictions")


class Run:
    """One run's folder. `run.json` says from the start what it is and how it stands."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self._record: dict = {}

    def claim(self, fresh=False):
        """Makes sure that the folder may be used, and leaves what is in it.

        Raises:
            UserError: if it holds a run and `fresh` is False, holds files that are no run's, or cannot be made.
        """
        if (self.folder / "run.json").is_file():
            if not fresh:
                raise UserError(
                    f"A run is not overwritten unasked. Received: out={str(self.folder)!r}, which holds one "
                    f"({status(self.folder)}). Add --fresh to replace it, or choose another --out."
                )
        elif self.folder.is_dir() and any(self.folder.iterdir()):
            raise UserError(
                f"A run gets a folder of its own. Received: out={str(self.folder)!r}, which holds other files. "
                f"Choose another --out."
            )
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
        except OSError as error:
            raise UserError(
                f"A run's folder can be written. Received: out={str(self.folder)!r} ({error.strerror}). "
                f"Choose another --out."
            ) from None

    def start(self, recipe, model, precision, xla, remat=False):
        """Removes a former run and records what is trained."""
        for name in CONTENTS:
            file = self.folder / name
            if file.is_dir():
                shutil.rmtree(file)
            else:
                file.unlink(missing_ok=True)
        parts = {name: getattr(model, name).count_params() for name in ("body", *model.part_names())}
        self._record = {
            "recipe": recipe.name,
            "recipe_file": recipe.origin,
            "status": "running",
            "seed": recipe.seed,
            "settings": {name: getattr(recipe, name) for name in SETTINGS}
            | {"precision": precision, "xla": xla, "remat": remat, "backend": keras.backend.backend()}
            | {"rates": recipe.mixture.rates},
            "parameters": {"total": model.count_params()} | parts,
            "tasks": {name: signature.to_json() for name, signature in model.signatures.items()},
            "versions": {"python": platform.python_version()} | dict(filter(None, map(_version, VERSIONS))),
        }
        write_json(self.folder / "run.json", self._record)

    def list_left_out(self, left_out):
        """Lists unusable and too long examples in `left_out.jsonl`, where there are any, and counts all in `run.json`.

        Args:
            left_out: `{task: {split: list of LeftOut}}`.
        """
        rows = [(task, split, one) for task, splits in left_out.items() for split, of in splits.items() for one in of]
        listed = [{"task": task, "split": split} | vars(one) for task, split, one in rows if one.kind != INCOMPLETE]
        if listed:
            lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in listed)
            (self.folder / "left_out.jsonl").write_text(lines, encoding="utf-8", errors="surrogateescape")
        counts = {
            task: {split: dict(collections.Counter(one.kind for one in of)) for split, of in splits.items()}
            for task, splits in left_out.items()
        }
        self._record["left_out"] = counts
        write_json(self.folder / "run.json", self._record)

    def finish(self, recipe, step, seconds, parameters, scores, usage):
        """Records scores and what was used; a run that stopped before its last step is not `finished`."""
        metrics = {"recipe": recipe.name, "step": step, "seconds": round(seconds, 1), "parameters": parameters}
        write_json(self.folder / "metrics.json", metrics | {"tasks": scores, "usage": usage})
        if step < recipe.steps:
            self.fail(f"stopped by the user after {step} of {recipe.steps} steps")
        else:
            write_json(self.folder / "run.json", self._record | {"status": "finished"})

    def fail(self, reason):
        """Records why the run ended early."""
        write_json(self.folder / "run.json", self._record | {"status": "failed", "reason": reason})


def status(folder):
    """`running`, `finished` or `failed`, as the folder's `run.json` has it."""
    try:
        return read_run(folder)["status"]
    except (UserError, KeyError):
        return "unknown"


def read_run(folder):
    """The folder's `run.json`.

    Raises:
        UserError: if there is none, or it cannot be read.
    """
    try:
        return json.loads((pathlib.Path(folder) / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise UserError(
            f"A run's folder holds a run.json. Received: {str(folder)!r}, without a readable one. Check the path."
        ) from None


def write_json(file, values):
    """Replaces a JSON file as a whole, so that no reader finds half of one."""
    draft = file.with_name(f".{file.name}.draft")
    draft.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    draft.replace(file)


def _version(package):
    try:
        return package, importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
