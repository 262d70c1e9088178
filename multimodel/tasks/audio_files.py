"""Sound files of any kind to samples of one channel and one rate."""

import io
import math
import pathlib

import numpy as np
import soundfile
import soxr

MARGIN = 0.1  # seconds read beyond the longest clip, to know that there is more
FULL_SCALE = 0.999


def decode_audio(file, rate, max_seconds, path=""):
    """A binary file of an encoded clip -> float32 `(samples,)` at `rate`, and what is odd about it, as a list of str.

    No more than a little over `max_seconds` is read. A rate of None is the file's own. Channels are mixed down before
    the rate is changed.

    Raises:
        Exception: libsndfile's own, where the content is no sound.
    """
    cut_off = _is_cut_off(file)
    with soundfile.SoundFile(file) as clip:
        frames = clip.read(math.ceil((max_seconds + MARGIN) * clip.samplerate), dtype="float32", always_2d=True)
        odd = _oddities(clip, frames, rate, max_seconds, path) + ["cut off: shorter than it says"] * cut_off
        samples = frames.mean(axis=1)
        if rate and clip.samplerate != rate and samples.size:
            samples = soxr.resample(samples, clip.samplerate, rate)
            if not samples.size:  # a few samples of a high rate are less than one of a low rate
                samples = frames.mean(axis=1)[:1]
    return samples, odd


def _is_cut_off(file):
    """Whether a WAV file says that it is longer than it is. libsndfile reads what is there."""
    start, size = file.read(8), file.seek(0, io.SEEK_END)
    file.seek(0)
    return start[:4] == b"RIFF" and int.from_bytes(start[4:], "little") + 8 > size


def _oddities(clip, frames, rate, max_seconds, path):
    odd = []
    named = {"WAVE": "WAV", "OGA": "OGG", "OPUS": "OGG"}.get(
        suffix := pathlib.PurePath(path).suffix[1:].upper(), suffix
    )
    if named in soundfile.available_formats() and named != clip.format.replace("WAVEX", "WAV"):
        odd.append(f"named as {named}, is {clip.format}")
    if rate and clip.samplerate != rate:
        odd.append(f"{clip.samplerate} Hz, resampled to {rate} Hz")
    if clip.channels > 1:
        odd.append(f"{clip.channels} channels, mixed down to one")
    if clip.frames > max_seconds * clip.samplerate:
        odd.append(f"{clip.frames / clip.samplerate:.1f} s, longer than {max_seconds} s")
    if not frames.size:
        return odd
    loudest = np.abs(frames).max()
    if loudest == 0:
        odd.append("silent")
    elif np.abs(frames.mean(axis=1)).max() < 0.01 * loudest:
        odd.append("silent when mixed down: its channels cancel out")
    elif np.mean(np.abs(frames) >= FULL_SCALE) > 0.01:
        odd.append("clipped: more than 1 % of its samples are at full scale")
    return odd
