"""Nets between raw arrays of a modality and the body. They import keras alone."""

from modality_nets.audio import AudioInputNet
from modality_nets.base import InputNet, OutputNet
from modality_nets.image import ImageInputNet
from modality_nets.label import LabelOutputNet
from modality_nets.text import TextInputNet, TextOutputNet

__all__ = [
    "AudioInputNet",
    "ImageInputNet",
    "InputNet",
    "LabelOutputNet",
    "OutputNet",
    "TextInputNet",
    "TextOutputNet",
]
