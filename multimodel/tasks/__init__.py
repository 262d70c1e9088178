"""What to learn: tasks, their features, sources and mixtures, and the quickstart's datasets."""

from multimodel.tasks.animals import animals, scenes
from multimodel.tasks.features import Audio, Image, Label, Text
from multimodel.tasks.mixture import Mixture
from multimodel.tasks.numbers import numbers
from multimodel.tasks.python_ast import python_ast
from multimodel.tasks.sources import ArraySource, JsonlSource
from multimodel.tasks.speech import speech
from multimodel.tasks.task import Task
from multimodel.tasks.vocabulary import Vocabulary

__all__ = [
    "ArraySource",
    "Audio",
    "Image",
    "JsonlSource",
    "Label",
    "Mixture",
    "Task",
    "Text",
    "Vocabulary",
    "animals",
    "numbers",
    "python_ast",
    "scenes",
    "speech",
]
