"""Two-dimensional convolutional blocks of the image and audio nets: ConvStep2D and ConvRes."""

import keras
from keras import ops

from modality_nets.base import InputNet


@keras.saving.register_keras_serializable("multimodel")
class ConvStep2D(keras.layers.Layer):
    """One separable convolution over a grid, with its activation before and its normalisation after.

    `ConvStep_{s,f}(x) = LayerNorm(pointwise_f(depthwise_s(ReLU(x))))` (arXiv 1706.05137, section 2.1). Output (i, j)
    is centred at input (i s, j s), whatever the size of the grid, so that padding behind it changes nothing.

    Args:
        filters: channels out.
        kernel_size: (rows, columns), odd.
        strides: (rows, columns); they may differ for a 1 x 1 kernel alone.

    Shapes: `(b, r, c, channels)`, `mask (b, r, c)` -> `(b, ceil(r / s), ceil(c / s), filters)`.

    Raises:
        ValueError: if a side of the kernel is even, or strides differ under a larger kernel.
    """

    def __init__(self, filters, kernel_size=(3, 3), strides=(1, 1), **kwargs):
        super().__init__(**kwargs)
        self.filters, self.kernel_size, self.strides = filters, tuple(kernel_size), tuple(strides)
        rows, columns = self.strides
        if not all(side % 2 for side in self.kernel_size) or (rows != columns and self.kernel_size != (1, 1)):
            raise ValueError(
                f"Kernels have a middle, and stride alike in both directions unless they are 1 x 1. "
                f"Received: kernel_size={self.kernel_size}, strides={self.strides}. Choose odd sizes and equal strides."
            )
        self.pointwise = keras.layers.Dense(filters, use_bias=False, dtype=self.dtype_policy, name="pointwise")
        self.norm = keras.layers.LayerNormalization(epsilon=1e-6, dtype=self.dtype_policy)

    def build(self, input_shape):
        channels = input_shape[-1]
        bound = (3 / (self.kernel_size[0] * self.kernel_size[1])) ** 0.5
        self.depthwise = self.add_weight(
            shape=(*self.kernel_size, channels, 1),
            initializer=keras.initializers.RandomUniform(-bound, bound),
            name="depthwise",
        )
        self.pointwise.build(input_shape)
        self.norm.build((*input_shape[:-1], self.filters))
        self.built = True

    def call(self, x, mask=None):
        x = ops.relu(x)
        x = x if mask is None else ops.where(mask[..., None], x, ops.zeros((), x.dtype))
        if self.kernel_size == (1, 1):
            x = subsampled(x, self.strides) * ops.cast(self.depthwise[..., 0], x.dtype)
        else:
            x = _pad(x, self.kernel_size, 0)
            x = ops.depthwise_conv(x, self.depthwise, self.strides, "valid", data_format="channels_last")
        return self.norm(self.pointwise(x))

    compute_mask = InputNet.compute_mask

    def get_config(self):
        sizes = {"filters": self.filters, "kernel_size": self.kernel_size, "strides": self.strides}
        return super().get_config() | sizes


@keras.saving.register_keras_serializable("multimodel")
class ConvRes(keras.layers.Layer):
    """Two ConvSteps and a pooling, with a strided shortcut.

    `ConvRes(x, F) = maxpool_s(step2_F(step1_F(x))) + ConvStep_{s,F}^{1x1}(x)` (arXiv 1706.05137, section 2.5.2).

    Args:
        filters: F.
        kernel_size: (rows, columns) of steps and pooling.
        strides: (rows, columns).

    Shapes: `(b, r, c, channels)`, `mask (b, r, c)` or None -> `(b, ceil(r / s), ceil(c / s), filters)`, mask or None.
    """

    def __init__(self, filters, kernel_size=(3, 3), strides=(2, 2), **kwargs):
        super().__init__(**kwargs)
        self.filters, self.kernel_size, self.strides = filters, tuple(kernel_size), tuple(strides)
        self.steps = [ConvStep2D(filters, self.kernel_size, dtype=self.dtype_policy, name=f"step{i}") for i in (1, 2)]
        self.shortcut = ConvStep2D(filters, (1, 1), self.strides, dtype=self.dtype_policy, name="shortcut")

    def build(self, input_shape):
        one, two = self.steps
        one.build(input_shape)
        two.build((*input_shape[:-1], self.filters))
        self.shortcut.build(input_shape)
        self.built = True

    def call(self, x, mask=None):
        one, two = self.steps
        y = max_pool(two(one(x, mask=mask), mask=mask), self.kernel_size, self.strides, mask)
        x = y + self.shortcut(x, mask=mask)
        return x, None if mask is None else subsampled(mask, self.strides)

    compute_mask = InputNet.compute_mask

    def get_config(self):
        sizes = {"filters": self.filters, "kernel_size": self.kernel_size, "strides": self.strides}
        return super().get_config() | sizes


def max_pool(x, size, strides, mask=None):
    """Maximum over the real positions of windows centred at every `strides`-th position; 0 where that one is not real.

    `(b, r, c, channels)`, `mask (b, r, c)` -> `(b, ceil(r / s), ceil(c / s), channels)`.
    """
    lowest = -6e4  # float16 ends at -65,504
    x = x if mask is None else ops.where(mask[..., None], x, ops.cast(lowest, x.dtype))
    x = ops.max_pool(_pad(x, size, lowest), size, strides, "valid", data_format="channels_last")
    return x if mask is None else ops.where(subsampled(mask, strides)[..., None], x, ops.zeros((), x.dtype))


def subsampled(x, strides):
    """Every `strides`-th row and column of `x (b, r, c, ...)`."""
    return x if strides == (1, 1) else x[:, :: strides[0], :: strides[1]]


def _pad(x, size, value):
    """Half a window on every side. "same" would shift the windows of an even grid against those of an odd one."""
    rows, columns = (side // 2 for side in size)
    return ops.pad(x, [[0, 0], [rows, rows], [columns, columns], [0, 0]], constant_values=value)
