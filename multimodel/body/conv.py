"""Convolutional blocks of the body: ConvStep and ConvBlock."""

import keras
from keras import ops

from multimodel.body.block import XLA_BY_DEFAULT, Block, masked, section
from multimodel.body.norm import LayerNorm


@keras.saving.register_keras_serializable("multimodel")
class ConvStep(keras.layers.Layer):
    """One separable convolution with its activation before and its normalisation after.

    `ConvStep(x) = LayerNorm(pointwise(depthwise(ReLU(x))))`
    (arXiv 1706.05137, section 2.1). Without a bias, since the normalisation has one.

    Args:
        dim: channels in and out.
        kernel_size: taps of the depthwise convolution, odd.
        dilation: distance between taps.
        causal: pads all zeros on the left, so that position t sees no position after t.

    Attributes:
        supports_jit: whether XLA compiles it, and not TensorFlow: see `XLA_BY_DEFAULT`.

    Shapes: `(b, n, dim)` -> `(b, n, dim)`.

    Raises:
        ValueError: if `kernel_size` is even.
    """

    def __init__(self, dim, kernel_size, dilation=1, causal=False, **kwargs):
        super().__init__(**kwargs)
        if kernel_size % 2 == 0:
            raise ValueError(
                f"A kernel needs a middle. Received: kernel_size={kernel_size}. Choose an odd kernel_size."
            )
        self.dim, self.kernel_size, self.dilation, self.causal = dim, kernel_size, dilation, causal
        self.reach = (kernel_size - 1) * dilation
        self.supports_jit = XLA_BY_DEFAULT
        self.pointwise = keras.layers.Dense(dim, use_bias=False, dtype=self.dtype_policy, name="pointwise")
        self.norm = LayerNorm(dtype=self.dtype_policy)

    def build(self, input_shape):
        bound = (3 / self.kernel_size) ** 0.5
        self.depthwise = self.add_weight(
            shape=(self.kernel_size, 1, self.dim, 1),
            initializer=keras.initializers.RandomUniform(-bound, bound),
            name="depthwise",
        )
        self.pointwise.build(input_shape)
        self.norm.build(input_shape)
        self.built = True

    def call(self, x, mask=None):
        x = masked(ops.relu(x), mask)
        x = self._convolve_depthwise(x)
        return self.norm(self.pointwise(x))

    def _convolve_depthwise(self, x):
        left = self.reach if self.causal else self.reach // 2
        return self._sum_taps(x, left) if self.supports_jit else self._fold(x, left)

    def _sum_taps(self, x, left):
        """A sum of shifted products, which XLA makes one loop of: its own depthwise convolution takes 20 to 90 times
        as long on a CPU. Without XLA this one does."""
        length = ops.shape(x)[1]
        x = ops.pad(x, [[0, 0], [left, self.reach - left], [0, 0]])
        kernel = ops.cast(self.depthwise, x.dtype)[:, 0, :, 0]  # (kernel_size, dim)
        return sum(section(x, tap * self.dilation, length, axis=1) * kernel[tap] for tap in range(self.kernel_size))

    def _fold(self, x, left):
        """Folds the dilation into an axis, so that an undilated kernel does the work.

        Position `t` becomes row `t // dilation`, column `t % dilation`: neighbours in a column are `dilation` apart.
        TensorFlow's dilated depthwise convolution takes twice as long.
        """
        length = ops.shape(x)[1]
        rows = -(-(length + self.reach) // self.dilation)
        right = rows * self.dilation - length - left
        x = ops.pad(x, [[0, 0], [left, right], [0, 0]])
        x = ops.reshape(x, (-1, rows, self.dilation, self.dim))
        x = ops.depthwise_conv(x, self.depthwise, padding="valid", data_format="channels_last")
        x = ops.reshape(x, (-1, (rows - self.kernel_size + 1) * self.dilation, self.dim))
        return x if self.dilation == 1 else section(x, 0, length, axis=1)

    compute_mask = Block.compute_mask

    def start(self, batch_size):
        """The cache before the first position: the last `reach` activations, zeros.

        Those that are seen together lie together: a list of `dilation` times `(b, kernel_size - 1, dim)`, of which the
        next position sees the first. The list is turned, and no activation that is not seen is copied.
        """
        shape = (batch_size, self.kernel_size - 1, self.dim)
        return [ops.zeros(shape, self.compute_dtype) for _ in range(self.dilation)]

    def step(self, x, cache):
        """One position of a causal step: `x (b, 1, dim)` and the cache to their successors."""
        seen = ops.concatenate([cache[0], ops.relu(x)], axis=1)  # (b, kernel_size, dim)
        x = ops.sum(seen * ops.cast(self.depthwise, seen.dtype)[:, 0, :, 0], axis=1, keepdims=True)
        return self.norm(self.pointwise(x)), [*cache[1:], seen[:, 1:]]

    def get_config(self):
        return super().get_config() | {
            "dim": self.dim,
            "kernel_size": self.kernel_size,
            "dilation": self.dilation,
            "causal": self.causal,
        }


@keras.saving.register_keras_serializable("multimodel")
class ConvBlock(Block):
    """Four ConvSteps with two skips, both from the block's input.

    `h2 = x + step2(step1(x))`, `out = dropout(x + step4(step3(h2)))`, with kernels 3, 3, 15 and 15, the last one
    dilated by 8: 131 positions of reach (arXiv 1706.05137, section 2.1).

    Args:
        dim: channels in and out.
        causal: every step pads on the left, for mixer and decoder.
        dropout: rate at the block's end, in training.
        remat: whether training computes the block's inside again for the gradient instead of keeping it.

    Shapes: `(b, n, dim)` -> `(b, n, dim)`; `mask (b, n)` boolean, True = real.

    Example:
        >>> ConvBlock(64)(keras.ops.ones((2, 10, 64))).shape
        (2, 10, 64)
    """

    def __init__(self, dim, causal=False, dropout=0.1, remat=False, **kwargs):
        super().__init__(**kwargs)
        self.dim, self.causal, self.dropout, self.remat = dim, causal, dropout, remat
        shapes = [(3, 1), (3, 1), (15, 1), (15, 8)]
        self.steps = [
            ConvStep(dim, size, dilation, causal, dtype=self.dtype_policy, name=f"step{i}")
            for i, (size, dilation) in enumerate(shapes, 1)
        ]
        self.drop = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, input_shape, *args, **kwargs):
        for step in self.steps:
            step.build(input_shape)
        self.built = True

    def call(self, x, mask=None, context=None, context_mask=None, training=False):
        one, two, three, four = self.steps

        def convolve(x):
            h = x + two(one(x, mask=mask), mask=mask)
            return x + four(three(h, mask=mask), mask=mask)

        if self.remat and training:
            convolve = keras.remat(convolve)
        return self.drop(convolve(x), training=training)  # outside, since dropout would draw anew

    def start(self, batch_size, max_length, context=None, context_mask=None):
        return [step.start(batch_size) for step in self.steps]

    def step(self, x, cache):
        (one, two, three, four), (c1, c2, c3, c4) = self.steps, cache
        h, c1 = one.step(x, c1)
        h, c2 = two.step(h, c2)
        h, c3 = three.step(x + h, c3)
        h, c4 = four.step(h, c4)
        return x + h, [c1, c2, c3, c4]

    def get_config(self):
        return super().get_config() | {
            "dim": self.dim,
            "causal": self.causal,
            "dropout": self.dropout,
            "remat": self.remat,
        }
