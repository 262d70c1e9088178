"""A run's folder: what is written there, and when it may be replaced."""

import collections
import contextlib
import errno
import fcntl
import importlib.metadata
import json
import math
import os
import pathlib
import platform
import resource
import shutil
import tempfile

import keras

from multimodel.errors import UserError
from multimodel.memory import peak_mb
from multimodel.tasks.examples import INCOMPLETE
from multimodel.training.checkpoints import KEEP, state_of

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
    "validate_every",
    "monitor",
    "patience",
)
CONTENTS = (
    "metrics.json",
    "history.jsonl",
    "left_out.jsonl",
    "report.html",
    "checkpoints",
    "export",
    "model",
    "predictions",
    "samples",
    "tensorboard",
)

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


class Run:
    """One run's folder. `run.json` says from the start what it is and how it stands."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self._record: dict = {}

    def claim(self, fresh=False, resume=False):
        """Makes sure that the folder may be used, and leaves what is in it.

        Raises:
            UserError: if it holds a run and neither `fresh` nor `resume` is asked for, holds files that are no run's,
                or cannot be written.
        """
        if fresh and resume:
            raise UserError("A run goes on, or begins anew. Received: resume and fresh. Leave one out.")
        if (self.folder / "run.json").is_file():
            if not fresh and not resume:
                raise UserError(
                    f"A run is not overwritten unasked. Received: out={str(self.folder)!r}, which holds one "
                    f"({status(self.folder)}). Add --resume to go on with it, --fresh to replace it, or choose another "
                    f"--out."
                )
        elif self.folder.is_dir() and any(not file.name.endswith(".draft") for file in self.folder.iterdir()):
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

    @contextlib.contextmanager
    def locked(self):
        """Keeps other processes out of the folder; the lock ends with this process, however that ends.

        Raises:
            UserError: if another process has it.
        """
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(
                    f"A run's folder is used by one process at a time. Received: out={str(self.folder)!r}, where "
                    f"another one trains. Wait for it, or choose another --out."
                ) from None
            except OSError:  # some network file systems cannot lock a folder
                pass
            yield
        finally:
            os.close(descriptor)

    def require_room(self, model):
        """Makes sure that the weights and KEEP + 2 checkpoints fit.

        Raises:
            UserError: if there is less room, or files may not be that large.
        """
        weights = 4 * model.count_params()
        checkpoint = sum(4 * math.prod(variable.shape) for variable in state_of(model).values())
        largest, free = resource.getrlimit(resource.RLIMIT_FSIZE)[0], shutil.disk_usage(self.folder).free
        files = [file for name in CONTENTS for file in (self.folder / name).rglob("*")]
        free += sum(file.stat().st_size for file in files if file.is_file())  # which are replaced
        needed = weights + (KEEP + 2) * checkpoint
        for what, need, room in (("disk space", needed, free), ("files of that size", checkpoint, largest)):
            if room != resource.RLIM_INFINITY and need > room:
                raise UserError(
                    f"A run's folder has room for weights and checkpoints: {need / 2**20:.1f} MiB of {what}. Received: "
                    f"out={str(self.folder)!r}, with {room / 2**20:.1f} MiB. Make room, or choose another --out."
                )

    def was_trained(self):
        """Whether something is in the folder that a beginning would remove."""
        return any((self.folder / name).exists() for name in ("history.jsonl", "model", "checkpoints/best.npz")) or any(
            (self.folder / "checkpoints").glob("*.damaged")
        )

    def start(self, recipe, model, settings):
        """Removes a former run and records what is trained."""
        for name in CONTENTS:
            file = self.folder / name  # but run.json, which is replaced: it tells that the folder is a run's
            if file.is_dir():
                shutil.rmtree(file)
            else:
                file.unlink(missing_ok=True)
        self._record = {}
        self._begin(recipe, model, settings)

    def resume(self, recipe, model, settings, step, changes):
        """Records that a run goes on after a step: `resumed_at`, and in `changes` what is not as it was."""
        try:
            former = read_run(self.folder)
        except UserError:  # the checkpoints are what counts
            former = {}
        self._record = {
            "recovered": former.get("recovered", []),
            "resumed_at": [*former.get("resumed_at", []), step],
            "changes": former.get("changes", {}) | ({str(step): changes} if changes else {}),
        }
        self._begin(recipe, model, settings)

    def _begin(self, recipe, model, settings):
        parts = {name: getattr(model, name).count_params() for name in ("body", *model.part_names())}
        self._record = {
            "recipe": recipe.name,
            "recipe_file": recipe.origin,
            "status": "running",
            "seed": recipe.seed,
            "settings": settings | {"rates": recipe.mixture.rates},
            "parameters": {"total": model.count_params()} | parts,
            "tasks": {name: signature.to_json() for name, signature in model.signatures.items()},
            "versions": {"python": platform.python_version()} | dict(filter(None, map(_version, VERSIONS))),
        } | self._record
        write_json(self.folder / "run.json", self._record)

    def recovered(self, record):
        """Records a recovery: step, task, loss, the batches that are passed over, and examples."""
        self._record.setdefault("recovered", []).append(record)
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

    @contextlib.contextmanager
    def recording_failure(self, reason=lambda error: str(error)):
        """Records why what is done within failed.

        Args:
            reason: a function of the exception that says so in a line.

        Raises:
            UserError: in place of an OSError that says that the disk is full, or may not be written any more.
        """
        try:
            try:
                yield
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                raise UserError(
                    f"A run's folder has room for what it writes. Received: out={str(self.folder)!r} "
                    f"({os.strerror(error.errno)}). The last good checkpoint is kept: make room, and go on with "
                    f"--resume."
                ) from None
        except BaseException as error:
            self.fail(reason(error))
            raise

    def finish(self, metrics, stopped=None):
        """Writes `metrics.json`; a run that somebody stopped is not `finished`.

        Args:
            metrics: JSON values.
            stopped: why it ended before its last step, or None.
        """
        write_json(self.folder / "metrics.json", metrics | {"peak_memory_mb": peak_mb()})
        if stopped:
            self.fail(stopped)
        else:
            write_json(self.folder / "run.json", self._record | {"status": "finished"})

    def fail(self, reason):
        """Records why the run ended early, unless the disk is full."""
        with contextlib.suppress(OSError):
            write_json(self.folder / "run.json", self._record | {"status": "failed", "reason": reason})


def settings_of(recipe, precision, xla, remat):
    """What a recipe and its options set, in JSON values."""
    options = {"precision": precision, "xla": xla, "remat": remat, "backend": keras.backend.backend()}
    return {name: getattr(recipe, name) for name in SETTINGS} | options


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
    try:
        with draft.open("w", encoding="utf-8") as output:
            output.write(json.dumps(values, indent=1, ensure_ascii=False) + "\n")
            output.flush()
            os.fsync(output.fileno())
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)


def _version(package):
    try:
        return package, importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
