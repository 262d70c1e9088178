"""The tiny recipe and a task that hears, and files for all of its tasks."""

import dataclasses
import io

import numpy as np
import PIL.Image
import soundfile

import multimodel as mm
from modality_nets import AudioInputNet
from multimodel.tasks import ArraySource, Audio, Text
from tests import tiny_recipe

RATE = 2000
TONES = {"low": 200, "high": 700}


def tones(count, seed):
    random = np.random.default_rng(seed)
    names = [str(name) for name in random.choice(list(TONES), count)]
    clips = [np.sin(np.arange(500) * TONES[name] * 2 * np.pi / RATE).astype("float32") * 0.5 for name in names]
    return {"clip": clips, "name": names}


def recipe():
    """The tiny recipe, and a task that hears."""
    tiny = tiny_recipe.recipe()
    source = ArraySource({"train": tones(20, 0), "test": tones(8, 1)})
    written = Text("name", tiny.mixture.tasks["upper"].targets.vocabulary, 8)
    hears = mm.Task("tones", source, Audio("clip", RATE, 0.5, too_long="refuse"), written)
    nets = tiny.nets | {"audio_input": AudioInputNet(16, RATE, num_mels=8)}
    return dataclasses.replace(tiny, mixture=mm.Mixture({tiny.mixture: 4, hears: 1}), nets=nets, batch_size=20)


def png(colour):
    file = io.BytesIO()
    PIL.Image.fromarray(np.full((8, 8, 3), colour, "uint8")).save(file, "PNG")
    return file.getvalue()


def wav(frequency, samples=500):
    file = io.BytesIO()
    wave = 0.5 * np.sin(np.arange(samples) * frequency * 2 * np.pi / RATE)
    soundfile.write(file, wave, RATE, format="WAV", subtype="PCM_16")
    return file.getvalue()


CONTENTS = {
    "colours": [png((255, 0, 0)), png((0, 200, 0)), png((3, 40, 255))],
    "captions": [png((255, 0, 0)), png((0, 200, 0)), png((3, 40, 255))],
    "upper": [b"ab cd", "größer als 👍".encode(), b"", b"ef " * 40],
    "tones": [wav(200), wav(700), wav(300, 90)],
}
