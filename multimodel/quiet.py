"""Silence for native code that prints what no user asked for and has no switch for it."""

import contextlib
import os
import threading

_lock = threading.Lock()


@contextlib.contextmanager
def no_stderr():
    """Drops all that this process writes to stderr, native code included."""
    with _lock:
        yield from _redirected()


def _redirected():
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
