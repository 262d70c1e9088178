"""Audio in: log-mel frames of each clip, shortened by strided convolutions."""

import keras
from keras import ops

from modality_nets.base import InputNet, masked_mean
from modality_nets.mel import MelFrames


@keras.saving.register_keras_serializable("multimodel")
class AudioInputNet(InputNet):
    """Log-mel frames, the clip's own mean taken off, and strided convolutions over time.

    Frequencies are channels of the first convolution: time alone is strided. Every number comes from the clip
    itself, so a clip gives the same vectors in any batch and under any padding.

    Args:
        dim: the body's width.
        sample_rate: samples per second of the waveforms.
        num_mels: bins of a frame.
        frame_seconds: length of a frame.
        hop_seconds: from one frame to the next.
        num_strides: convolutions of stride 2.

    Shapes: waveforms `(b, samples)`, float from -1 to 1 or 16-bit, with `mask (b, samples)` ->
    `(b, ceil(frames / 2^num_strides), dim)`, frames = ceil(samples / hop).
    """

    def __init__(
        self, dim, sample_rate=16000, num_mels=64, frame_seconds=0.025, hop_seconds=0.01, num_strides=2, **kwargs
    ):
        super().__init__(**kwargs)
        self.dim, self.sample_rate, self.num_mels = dim, sample_rate, num_mels
        self.frame_seconds, self.hop_seconds, self.num_strides = frame_seconds, hop_seconds, num_strides
        self.mel_frames = MelFrames(sample_rate, num_mels, frame_seconds, hop_seconds)
        self.strided = [
            keras.layers.Conv1D(dim, 5, 2, kernel_initializer="he_normal", dtype=self.dtype_policy, name=f"strided{i}")
            for i in range(num_strides)
        ]
        self.norms = [
            keras.layers.LayerNormalization(epsilon=1e-6, dtype=self.dtype_policy, name=f"norm{i}")
            for i in range(num_strides)
        ]

    def build(self, *shapes, **kwargs):
        channels = self.num_mels
        for convolution, norm in zip(self.strided, self.norms, strict=True):
            convolution.build((None, None, channels))
            norm.build((None, None, self.dim))
            channels = self.dim
        self.built = True

    def call(self, inputs, mask=None):
        if mask is None:
            mask = ops.ones(ops.shape(inputs), "bool")
        x, mask = self.log_mel(inputs, mask)
        x = ops.cast(x, self.compute_dtype)
        for convolution, norm in zip(self.strided, self.norms, strict=True):
            x = ops.where(mask[..., None], x, ops.zeros((), x.dtype))
            odd = ops.shape(x)[1] % 2
            x = ops.pad(x, [[0, 0], [2, 1 + odd], [0, 0]])  # by hand: "same" would shift with the padded length
            x, mask = norm(ops.relu(convolution(x))), mask[:, ::2]
        return x, mask

    def log_mel(self, inputs, mask):
        """Waveforms `(b, samples)` -> float32 frames `(b, f, num_mels)` of mean 0 per clip and bin, mask `(b, f)`."""
        power, mask = self.mel_frames(inputs, mask)
        x = ops.log(power + 1e-6)
        return x - masked_mean(x, mask), mask

    def get_config(self):
        return super().get_config() | {
            "dim": self.dim,
            "sample_rate": self.sample_rate,
            "num_mels": self.num_mels,
            "frame_seconds": self.frame_seconds,
            "hop_seconds": self.hop_seconds,
            "num_strides": self.num_strides,
        }
