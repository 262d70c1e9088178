"""Images in: strided convolutions, then the grid read row by row."""

import keras
from keras import ops

from modality_nets.base import InputNet


@keras.saving.register_keras_serializable("multimodel")
class ImageInputNet(InputNet):
    """Strided 3 x 3 convolutions to the body's width, and one residual pair on the last grid.

    Each of `filters` and then `dim` is a convolution of stride 2 with a ReLU; a grid of `ceil(h / 2^s)` by
    `ceil(w / 2^s)` vectors is left, s the number of convolutions. It is normalised, refined and read row by row.

    Args:
        dim: the body's width.
        filters: channels of the convolutions before the last one.

    Shapes: RGB `(b, h, w, 3)` with values 0 to 255 -> `(b, rows * columns, dim)`; all of them are real, since the images
    of a task have one size.
    """

    def __init__(self, dim, filters=(32, 64), **kwargs):
        super().__init__(**kwargs)
        self.dim, self.filters = dim, tuple(filters)

        def convolution(channels, strides, name):
            return keras.layers.Conv2D(
                channels,
                3,
                strides,
                padding="same",
                kernel_initializer="he_normal",
                data_format="channels_last",
                dtype=self.dtype_policy,
                name=name,
            )

        self.strided = [convolution(f, 2, f"strided{i}") for i, f in enumerate((*self.filters, dim))]
        self.refine = [convolution(dim, 1, f"refine{i}") for i in range(2)]
        self.norms = [
            keras.layers.LayerNormalization(epsilon=1e-6, dtype=self.dtype_policy, name=f"norm{i}") for i in range(2)
        ]

    def build(self, *shapes, **kwargs):
        channels = 3
        for convolution in self.strided:
            convolution.build((None, None, None, channels))
            channels = convolution.filters
        for layer in (*self.refine, *self.norms):
            layer.build((None, None, None, self.dim))
        self.built = True

    def call(self, inputs, mask=None):
        x = ops.cast(inputs, self.compute_dtype) / 127.5 - 1
        for convolution in self.strided:
            x = ops.relu(convolution(x))
        x = self.norms[0](x)
        one, two = self.refine
        x = self.norms[1](x + two(ops.relu(one(ops.relu(x)))))
        rows, columns = self.grid(inputs.shape[1:3])
        x = ops.reshape(x, (-1, rows * columns, self.dim))
        return x, ops.ones(ops.shape(x)[:2], "bool")

    def grid(self, size):
        """(height, width) of an image -> (rows, columns) of its vectors."""
        stride = 2 ** len(self.strided)
        return tuple(-(-side // stride) for side in size)

    def get_config(self):
        return super().get_config() | {"dim": self.dim, "filters": self.filters}
