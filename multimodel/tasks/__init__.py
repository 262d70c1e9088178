"""What to learn: tasks, their features, sources and mixtures, and the quickstart's datasets."""

from multimodel.tasks.animal_pictures import animals, scenes
from multimodel.tasks.features import Audio, Image, Label, Text
from multimodel.tasks.mixture import Mixture
from multimodel.tasks.number_words import numbers
from multimodel.tasks.sources import ArraySource, JsonlSource
from multimodel.tasks.spoken_words import speech
from multimodel.tasks.syntax_trees import python_ast
from multimodel.tasks.task import Task
from multimodel.tasks.tfds_source import FlattenedSource, TfdsSource
from multimodel.tasks.treebank import PennTreebankSource
from multimodel.tasks.vocabulary import Vocabulary

__all__ = [
    "ArraySource",
    "Audio",
    "FlattenedSource",
    "Image",
    "JsonlSource",
    "Label",
    "Mixture",
    "PennTreebankSource",
    "Task",
    "Text",
    "TfdsSource",
    "Vocabulary",
    "animals",
    "numbers",
    "python_ast",
    "scenes",
    "speech",
]
