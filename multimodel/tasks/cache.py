"""The cache folder: work that is done once, whole or not at all, by whichever process comes first."""

import contextlib
import os
import pathlib
import re
import shutil
import socket
import sys
import tempfile
import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from multimodel.errors import UserError

LOG_EVERY = 30  # seconds from line to line where there is no terminal
_DRAFT = re.compile(r"\.draft-(?P<host>.+)-(?P<process>\d+)-[^-]+")


def cache_folder():
    """`MULTIMODEL_CACHE`, or the place that the system has for caches."""
    if "MULTIMODEL_CACHE" in os.environ:
        return pathlib.Path(os.environ["MULTIMODEL_CACHE"])
    if sys.platform == "darwin":
        return pathlib.Path.home() / "Library" / "Caches" / "multimodel"
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "multimodel"


def build_folder(folder, build, whole):
    """Builds a folder, unless a whole one is there. It appears once all of it is there.

    Two processes may build it at once: the first one to end gives the folder, and their work is equal. What a killed
    process left is removed.

    Args:
        folder: below the cache folder.
        build: is given an empty folder to fill.
        whole: whether `folder` is there and whole.

    Raises:
        UserError: if the folder cannot be written, or has no room.
    """
    if whole():
        return
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_drafts_of_the_dead(folder.parent)
        draft = pathlib.Path(
            tempfile.mkdtemp(prefix=f".draft-{socket.gethostname()}-{os.getpid()}-", dir=folder.parent)
        )
    except OSError as error:
        raise UserError(
            f"Data is built into a folder that can be written. Received: {folder.parent} ({error.strerror}). "
            f"Set MULTIMODEL_CACHE to another one."
        ) from None
    try:
        build(draft)
        draft.chmod(0o755)
        _publish(draft, folder, whole)
    except OSError as error:
        raise UserError(
            f"Data is built into a folder with room for it. Received: {folder.parent} ({error.strerror}). "
            f"Make room, or set MULTIMODEL_CACHE to another folder."
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _publish(draft, folder, whole):
    """Moves the draft into place; where another process was faster, its equal work stays."""
    try:
        draft.replace(folder)
    except OSError:
        if whole():
            return
        shutil.rmtree(folder)
        draft.replace(folder)


def _remove_drafts_of_the_dead(parent):
    for path in parent.glob(".draft-*"):
        name = _DRAFT.fullmatch(path.name)
        if name and name["host"] == socket.gethostname() and not _runs(int(name["process"])):
            shutil.rmtree(path, ignore_errors=True)


def _runs(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        return True
    return True


@contextlib.contextmanager
def showing_progress(doing):
    """Gives `progress(done, total)`: a bar with the time left on a terminal, a line now and then elsewhere."""
    console = Console(stderr=True, highlight=False)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        if not console.is_terminal:
            console.print(doing)
        task = bar.add_task(doing, total=None)
        begin = last = time.monotonic()

        def progress(done, total):
            nonlocal last
            bar.update(task, completed=done, total=total)
            now = time.monotonic()
            if not console.is_terminal and now - last > LOG_EVERY:
                last = now
                console.print(f"{doing}: {done} of {total}, {(now - begin) / done * (total - done):.0f} s left")

        yield progress
