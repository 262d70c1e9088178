"""Spoken words, synthesised by espeak-ng (package espeakng-loader; espeak-ng is GPL-3 or later).

One to three words out of eighteen, spoken by many voices at many speeds and pitches. The speech is synthetic.
"""

import ctypes
import random

import numpy as np
import soxr

from multimodel.tasks.prepared import PreparedSource, require_extra

WORDS = "zero one two three four five six seven eight nine yes no stop go left right on off".split()
SAMPLE_RATE = 8000
CLIPS = {"train": 8000, "validation": 300, "test": 500}
ACCENTS = {"train": ("en-us", "en", "en-gb-x-rp", "en-gb-scotland", "en-029", "en-us-nyc")} | dict.fromkeys(
    ("validation", "test"), ("en-us", "en")
)
VOICES = {
    "train": (
        "m1 m3 m5 m6 f2 f4 Alex Alicia Andrea Andy Annie Denis Diogo Gene Henrique Hugo Lee Marco Mario Michael Mike "
        "Nguyen Reed adam anika announcer antonio aunty belinda benjamin boris caleb david ed edward grandma grandpa "
        "ian john max miguel norbert pablo paul pedro quincy rob robert sandro shelby steph travis victor zac"
    ).split(),
    "validation": "m4 m8 f1 linda".split(),
    "test": "m2 m7 f3 f5".split(),
}


def speech():
    """Fields `audio` int16 `(samples,)` at 8 kHz and `text`; no voice speaks in two splits."""

    def build(progress):
        with require_extra("quickstart"):
            speaker = _Speaker()
        splits, total, done = {}, sum(CLIPS.values()), 0
        for split, size in CLIPS.items():
            chooser, audio, texts = random.Random(split), [], []
            for _ in range(size):
                text = " ".join(chooser.choice(WORDS) for _ in range(chooser.randint(1, 3)))
                voice = f"{chooser.choice(ACCENTS[split])}+{chooser.choice(VOICES[split])}"
                audio.append(speaker.say(text, voice, chooser.randint(140, 220), chooser.randint(30, 70)))
                texts.append(text)
                done += 1
                progress(done, total)
            splits[split] = {"audio": audio, "text": texts}
        return splits

    return PreparedSource("speech", 1, ("train", "validation", "test"), build)


class _Speaker:
    """The espeak-ng library. Its synchronous mode: the other one sleeps 20 ms for every clip."""

    SYNCHRONOUS, RATE, PITCH, UTF8 = 2, 1, 3, 1

    def __init__(self):
        import espeakng_loader

        self._library = ctypes.CDLL(espeakng_loader.get_library_path())
        data = espeakng_loader.get_data_path().encode()
        self._sample_rate = self._library.espeak_Initialize(self.SYNCHRONOUS, 0, data, 0)
        if self._sample_rate <= 0:
            raise RuntimeError(f"espeak-ng cannot start with the data in {data.decode()}")
        self._pieces: list[np.ndarray] = []
        callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
        self._callback = callback(self._receive)
        self._library.espeak_SetSynthCallback(self._callback)

    def say(self, text, voice, rate, pitch):
        """Speaks; `rate` is in words a minute, `pitch` from 0 to 100. Returns int16 samples at SAMPLE_RATE."""
        self._pieces.clear()
        if self._library.espeak_SetVoiceByName(voice.encode()):  # it would go on in the voice before
            raise RuntimeError(f"espeak-ng has no voice {voice!r}")
        self._library.espeak_SetParameter(self.RATE, rate, 0)
        self._library.espeak_SetParameter(self.PITCH, pitch, 0)
        content = text.encode()
        self._library.espeak_Synth(content, len(content) + 1, 0, 1, 0, self.UTF8, None, None)
        if not self._pieces:
            raise RuntimeError(f"espeak-ng said nothing for {text!r} in voice {voice!r}")
        return soxr.resample(np.concatenate(self._pieces), self._sample_rate, SAMPLE_RATE)

    def _receive(self, samples, length, events):
        if samples and length > 0:
            self._pieces.append(np.ctypeslib.as_array(samples, shape=(length,)).copy())
        return 0
