"""MultiModel: one model for many tasks over text, images and audio (arXiv 1706.05137).

Names are loaded when they are first used: `MultiModel`, `Body` and `Signature` need Keras alone.
"""

import importlib

_HOMES = {
    "Body": "multimodel.body",
    "Epochs": "multimodel.tasks.mixture",
    "Bundle": "multimodel.export.bundle",
    "Mixture": "multimodel.tasks.mixture",
    "MultiModel": "multimodel.model",
    "Recipe": "multimodel.training.recipe",
    "Search": "multimodel.search",
    "Signature": "multimodel.signature",
    "Task": "multimodel.tasks.task",
    "UserError": "multimodel.errors",
    "Vocabulary": "multimodel.tasks.vocabulary",
    "load": "multimodel.export.load",
    "main": "multimodel.cli",
    "train": "multimodel.training.train",
}

__all__ = sorted(_HOMES)


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module 'multimodel' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__():
    return __all__
