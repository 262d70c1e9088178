"""Nets between raw arrays of a modality and the body. They import keras alone."""

from modality_nets.audio import AudioInputNet
from modality_nets.base import InputNet, OutputNet
from modality_nets.conv_audio import SpectrogramInputNet, WaveformInputNet
from modality_nets.image import ImageInputNet
from modality_nets.label import LabelOutputNet
from modality_nets.text import TextInputNet, TextOutputNet
from modality_nets.xception import XceptionInputNet, XceptionOutputNet

__all__ = [
    "AudioInputNet",
    "ImageInputNet",
    "InputNet",
    "LabelOutputNet",
    "OutputNet",
    "SpectrogramInputNet",
    "TextInputNet",
    "TextOutputNet",
    "WaveformInputNet",
    "XceptionInputNet",
    "XceptionOutputNet",
]
