"""The paper's nets for audio: stacks of ConvRes blocks over a waveform or a spectrogram."""

import keras
from keras import ops

from modality_nets.base import InputNet
from modality_nets.conv_res import ConvRes
from modality_nets.mel import MelFrames, as_float

NUM_BLOCKS = 8
STRIDE = 2**NUM_BLOCKS  # positions of the input for each position of the output


class _ConvResNet(InputNet):
    """`l_i = ConvRes(l_{i-1}, 2^i)` for i from 1 to 8 (arXiv 1706.05137, section 2.5.4), then a pointwise projection
    of the 256 channels to the body's width, which the paper leaves out. Time is halved by each block, frequency never.

    Args:
        dim: the body's width.
        kernel_size: of all blocks, (time, frequency).
    """

    def __init__(self, dim, kernel_size, **kwargs):
        super().__init__(**kwargs)
        self.dim = dim
        self.blocks = [
            ConvRes(2**i, kernel_size, (2, 1), dtype=self.dtype_policy, name=f"block{i}")
            for i in range(1, NUM_BLOCKS + 1)
        ]
        self.projection = keras.layers.Dense(dim, use_bias=False, dtype=self.dtype_policy, name="projection")

    def build(self, *shapes, **kwargs):
        channels = 1
        for block in self.blocks:
            block.build((None, None, None, channels))
            channels = block.filters
        self.projection.build((None, None, channels))
        self.built = True

    def through_blocks(self, x, mask):
        """`x (b, t, f)`, `mask (b, t)` -> vectors `(b, ceil(t / 256) * f, dim)` and their mask.

        Values are not negative: every block begins with a ReLU, which would cut the negative half of a signal.
        """
        mask = ops.broadcast_to(mask[..., None], ops.shape(x))
        x = ops.cast(x, self.compute_dtype)[..., None]
        for block in self.blocks:
            x, mask = block(x, mask=mask)
        x = self.projection(ops.reshape(x, (-1, x.shape[1] * x.shape[2], 2**NUM_BLOCKS)))
        return x, ops.reshape(mask, (-1, x.shape[1]))

    def get_config(self):
        return super().get_config() | {"dim": self.dim}


@keras.saving.register_keras_serializable("multimodel")
class WaveformInputNet(_ConvResNet):
    """Eight ConvRes blocks over the samples themselves, moved from -1 to 1 to 0 to 1.

    Args:
        dim: the body's width.

    Shapes: waveforms `(b, samples)`, float from -1 to 1 or 16-bit, with `mask (b, samples)` ->
    `(b, ceil(samples / 256), dim)`.
    """

    def __init__(self, dim, **kwargs):
        super().__init__(dim, (3, 1), **kwargs)

    def call(self, inputs, mask=None):
        mask = ops.ones(ops.shape(inputs), "bool") if mask is None else mask
        return self.through_blocks(((as_float(inputs, mask) + 1) / 2)[..., None], mask)


@keras.saving.register_keras_serializable("multimodel")
class SpectrogramInputNet(_ConvResNet):
    """Eight ConvRes blocks over mel frames, `log(1 + power / 1e-6)`; the grid is read row by row, time first.

    Args:
        dim: the body's width.
        sample_rate: samples per second of the waveforms.
        num_mels: bins of a frame.
        frame_seconds: length of a frame.
        hop_seconds: from one frame to the next.

    Shapes: waveforms `(b, samples)`, float from -1 to 1 or 16-bit, with `mask (b, samples)` ->
    `(b, ceil(frames / 256) * num_mels, dim)`, frames = ceil(samples / hop).
    """

    def __init__(self, dim, sample_rate=16000, num_mels=80, frame_seconds=0.025, hop_seconds=0.01, **kwargs):
        super().__init__(dim, (3, 3), **kwargs)
        self.sample_rate, self.num_mels = sample_rate, num_mels
        self.frame_seconds, self.hop_seconds = frame_seconds, hop_seconds
        self.mel_frames = MelFrames(sample_rate, num_mels, frame_seconds, hop_seconds)

    def call(self, inputs, mask=None):
        mask = ops.ones(ops.shape(inputs), "bool") if mask is None else mask
        power, mask = self.mel_frames(inputs, mask)
        return self.through_blocks(ops.log(1 + power / 1e-6), mask)

    def grid(self, shape):
        frames = -(-shape[0] // self.mel_frames.hop)
        return -(-frames // STRIDE), self.num_mels

    def get_config(self):
        return super().get_config() | {
            "sample_rate": self.sample_rate,
            "num_mels": self.num_mels,
            "frame_seconds": self.frame_seconds,
            "hop_seconds": self.hop_seconds,
        }
