"""What to learn: tasks, their features, sources and mixtures, and the quickstart's datasets."""

from multimodel.tasks.animal_pictures import animals, scenes
from multimodel.tasks.augmentation import SpecAugment
from multimodel.tasks.features import Audio, Image, Label, Text
from multimodel.tasks.folder_source import FolderSource
from multimodel.tasks.hugging_face import HuggingFaceSource
from multimodel.tasks.mixture import Epochs, Mixture
from multimodel.tasks.number_words import numbers
from multimodel.tasks.sources import ArraySource
from multimodel.tasks.spoken_words import speech
from multimodel.tasks.syntax_trees import python_ast
from multimodel.tasks.table_files import CsvSource, JsonlSource
from multimodel.tasks.task import Task
from multimodel.tasks.tfds_source import FlattenedSource, TfdsSource
from multimodel.tasks.treebank import PennTreebankSource
from multimodel.tasks.vocabulary import Vocabulary

__all__ = [
    "ArraySource",
    "Audio",
    "CsvSource",
    "Epochs",
    "FlattenedSource",
    "FolderSource",
    "HuggingFaceSource",
    "Image",
    "JsonlSource",
    "Label",
    "Mixture",
    "PennTreebankSource",
    "SpecAugment",
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
