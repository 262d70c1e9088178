"""Images in: stages of strided convolutions, then the grid read row by row."""

import keras
from keras import ops

from modality_nets.base import InputNet


@keras.saving.register_keras_serializable("multimodel")
class ImageInputNet(InputNet):
    """Stages that halve the picture, the last one to the body's width; then the grid is read row by row.

    A stage is a 3 x 3 convolution of stride 2 with a ReLU. From the second one on it is followed by a residual pair,
    `x = LayerNorm(x + separable(relu(separable(relu(x)))))`. A grid of `ceil(h / 2^s)` by `ceil(w / 2^s)` vectors is
    left after s stages.

    Args:
        dim: the body's width.
        filters: channels of the stages before the last one.

    Shapes: RGB `(b, h, w, 3)` with values 0 to 255 -> `(b, rows * columns, dim)`; all of them are real, since
    the images of a task have one size.
    """

    def __init__(self, dim, filters=(32, 64, 128), **kwargs):
        super().__init__(**kwargs)
        self.dim, self.filters = dim, tuple(filters)
        self.stages = [
            _Stage(f, refined=i > 0, dtype=self.dtype_policy, name=f"stage{i}")
            for i, f in enumerate((*self.filters, dim))
        ]

    def build(self, *shapes, **kwargs):
        channels = 3
        for stage in self.stages:
            stage.build((None, None, None, channels))
            channels = stage.filters
        self.built = True

    def call(self, inputs, mask=None):
        x = ops.cast(inputs, self.compute_dtype) / 127.5 - 1
        for stage in self.stages:
            x = stage(x)
        rows, columns = self.grid(inputs.shape[1:])
        x = ops.reshape(x, (-1, rows * columns, self.dim))
        return x, ops.ones(ops.shape(x)[:2], "bool")

    def grid(self, shape):
        stride = 2 ** len(self.stages)
        return tuple(-(-side // stride) for side in shape[:2])

    def get_config(self):
        return super().get_config() | {"dim": self.dim, "filters": self.filters}


class _Stage(keras.layers.Layer):
    """`(b, h, w, channels)` -> `(b, ceil(h / 2), ceil(w / 2), filters)`."""

    def __init__(self, filters, refined, **kwargs):
        super().__init__(**kwargs)
        self.filters = filters
        common = {"padding": "same", "data_format": "channels_last", "dtype": self.dtype_policy}
        self.strided = keras.layers.Conv2D(filters, 3, 2, kernel_initializer="he_normal", name="strided", **common)
        self.pair = [
            keras.layers.SeparableConv2D(filters, 3, name=f"separable{i}", **common) for i in range(2 if refined else 0)
        ]
        self.norm = keras.layers.LayerNormalization(epsilon=1e-6, dtype=self.dtype_policy, name="norm")

    def build(self, input_shape):
        self.strided.build(input_shape)
        shape = (*input_shape[:-1], self.filters)
        for layer in (*self.pair, self.norm):
            layer.build(shape)
        self.built = True

    def call(self, x):
        x = ops.relu(self.strided(x))
        if not self.pair:
            return self.norm(x)
        one, two = self.pair
        return self.norm(x + two(ops.relu(one(x))))
