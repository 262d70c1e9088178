"""Mel frames: the power of a waveform's frequencies, frame by frame."""

import keras
import numpy as np
from keras import ops


def mel_filters(num_mels, fft_length, sample_rate):
    """Triangular filters, evenly spaced on the mel scale `2595 log10(1 + f / 700)` up to half the sample rate.

    Returns:
        `(fft_length / 2 + 1, num_mels)` float32.
    """
    hertz = np.linspace(0, sample_rate / 2, fft_length // 2 + 1)
    mels = 2595 * np.log10(1 + hertz / 700)
    edges = np.linspace(0, mels[-1], num_mels + 2)
    lower, centre, upper = edges[:-2], edges[1:-1], edges[2:]
    rising = (mels[:, None] - lower) / (centre - lower)
    falling = (upper - mels[:, None]) / (upper - centre)
    return np.maximum(0, np.minimum(rising, falling)).astype("float32")


def as_float(samples, mask):
    """Waveforms `(b, samples)`, float from -1 to 1 or 16-bit -> float32, 0 where not real."""
    scale = 32768 if keras.backend.is_int_dtype(samples.dtype) else 1
    return ops.where(mask, ops.cast(samples, "float32") / scale, 0.0)


class MelFrames:
    """Waveforms to mel frames, in float32. Every frame comes from its clip alone.

    Args:
        sample_rate: samples per second.
        num_mels: bins of a frame.
        frame_seconds: length of a frame.
        hop_seconds: from one frame to the next.
    """

    def __init__(self, sample_rate, num_mels, frame_seconds, hop_seconds):
        self.frame, self.hop = round(sample_rate * frame_seconds), round(sample_rate * hop_seconds)
        self.fft_length = 2 ** int(np.ceil(np.log2(self.frame)))
        self.filters = mel_filters(num_mels, self.fft_length, sample_rate)

    def __call__(self, samples, mask):
        """`(b, samples)` and mask -> power `(b, f, num_mels)` and mask `(b, f)`, f = ceil(samples / hop)."""
        x = as_float(samples, mask)
        length = ops.shape(x)[1]
        frames = -(-length // self.hop)
        x = ops.pad(x, [[0, 0], [0, frames * self.hop - length + max(self.fft_length - self.hop, 0)]])
        real, imaginary = ops.stft(x, self.frame, self.hop, self.fft_length, window="hann", center=False)
        power = ops.square(real) + ops.square(imaginary)
        return ops.matmul(power, ops.convert_to_tensor(self.filters)), mask[:, :: self.hop]
