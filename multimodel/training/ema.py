"""Placeholder until merged."""

import contextlib


@contextlib.contextmanager
def averaged_weights(model):
    yield
