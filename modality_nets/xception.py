"""The paper's nets for images and labels, after the entry and exit flows of Xception (arXiv 1610.02357)."""

import keras
from keras import ops

from modality_nets.base import InputNet, OutputNet, masked_mean
from modality_nets.conv_res import ConvRes, ConvStep2D, max_pool


@keras.saving.register_keras_serializable("multimodel")
class XceptionInputNet(InputNet):
    """The entry flow: pictures to a grid of vectors a sixteenth as high and wide, read row by row.

    `ConvRes_dim(ConvRes_256(ConvRes_128(ConvStep_64(ConvStep_{s=2,32}(pixels / 255)))))`, all kernels 3 x 3
    (arXiv 1706.05137, section 2.5.2). Pixels from 0 to 1 pass the first step's ReLU as they are.

    Args:
        dim: the body's width.

    Shapes: RGB `(b, h, w, 3)` with values 0 to 255 -> `(b, rows * columns, dim)`; 299 x 299 gives 19 * 19 = 361. All
    of them are real, since the images of a task have one size.
    """

    def __init__(self, dim, **kwargs):
        super().__init__(**kwargs)
        self.dim = dim
        self.steps = [
            ConvStep2D(32, strides=(2, 2), dtype=self.dtype_policy, name="step1"),
            ConvStep2D(64, dtype=self.dtype_policy, name="step2"),
        ]
        self.blocks = [
            ConvRes(filters, dtype=self.dtype_policy, name=f"block{i}") for i, filters in enumerate((128, 256, dim), 1)
        ]

    def build(self, *shapes, **kwargs):
        channels = 3
        layers: list = [*self.steps, *self.blocks]
        for layer in layers:
            layer.build((None, None, None, channels))
            channels = layer.filters
        self.built = True

    def call(self, inputs, mask=None):
        x = ops.cast(inputs, self.compute_dtype) / 255
        for step in self.steps:
            x = step(x)
        for block in self.blocks:
            x, _ = block(x)
        rows, columns = self.grid(inputs.shape[1:])
        x = ops.reshape(x, (-1, rows * columns, self.dim))
        return x, ops.ones(ops.shape(x)[:2], "bool")

    def grid(self, shape):
        return tuple(-(-side // 16) for side in shape[:2])

    def get_config(self):
        return super().get_config() | {"dim": self.dim}


@keras.saving.register_keras_serializable("multimodel")
class XceptionOutputNet(OutputNet):
    """The exit flow: the encoded input, laid out as the grid that it came from, to one class.

    `h3 = ConvStep_{s=2}(x) + maxpool_{s=2}(ConvStep(ConvStep(x)))`,
    `logits = mean(ReLU(ConvStep_2048(ConvStep_1536(h3)))) W + b` (arXiv 1706.05137, section 2.5.3). It reads the
    encoder, so label tasks skip mixer and decoder.

    Args:
        num_classes: classes.
        dim: the body's width.
        columns: of the grid that the vectors came from, as the input net's `grid` has them. 1 for sequences; kernels
            are then 3 x 1.
        filters: channels of the last two steps.

    Shapes: `(b, rows * columns, dim)` with `mask (b, rows * columns)` -> `(b, 1, num_classes)`.

    Raises:
        ValueError: if the vectors do not fill rows of `columns`.
    """

    reads = "encoded"

    def __init__(self, num_classes, dim, columns=1, filters=(1536, 2048), **kwargs):
        super().__init__(**kwargs)
        self.num_classes, self.dim, self.columns, self.filters = num_classes, dim, columns, tuple(filters)
        self.kernel_size = (3, 3) if columns > 1 else (3, 1)
        sizes = {"step1": dim, "step2": dim, "step3": self.filters[0], "step4": self.filters[1]}
        self.skip = ConvStep2D(dim, self.kernel_size, (2, 2), dtype=self.dtype_policy, name="skip")
        self.steps = [
            ConvStep2D(size, self.kernel_size, dtype=self.dtype_policy, name=name) for name, size in sizes.items()
        ]
        self.classes = keras.layers.Dense(num_classes, dtype=self.dtype_policy, name="classes")

    def build(self, *shapes, **kwargs):
        self.skip.build((None, None, None, self.dim))
        channels = self.dim
        for step in self.steps:
            step.build((None, None, None, channels))
            channels = step.filters
        self.classes.build((None, None, channels))
        self.built = True

    def call(self, vectors, mask=None):
        length, columns = ops.shape(vectors)[1], self.columns
        if isinstance(length, int) and length % columns:
            raise ValueError(
                f"Vectors fill the rows of their grid. Received: {length} vectors, columns={columns}. "
                f"Pass the columns of the input net's grid."
            )
        rows = length // columns
        x = ops.reshape(vectors, (-1, rows, columns, self.dim))
        mask = None if mask is None else ops.reshape(mask, (-1, rows, columns))
        one, two, three, four = self.steps
        pooled = max_pool(two(one(x, mask=mask), mask=mask), self.kernel_size, (2, 2), mask)
        x = self.skip(x, mask=mask) + pooled
        mask = None if mask is None else mask[:, ::2, ::2]
        x = ops.relu(four(three(x, mask=mask), mask=mask))
        x = ops.reshape(x, (-1, -(-rows // 2) * -(-columns // 2), self.filters[1]))
        mask = None if mask is None else ops.reshape(mask, (-1, ops.shape(x)[1]))
        return self.classes(masked_mean(x, mask))

    def get_config(self):
        return super().get_config() | {
            "num_classes": self.num_classes,
            "dim": self.dim,
            "columns": self.columns,
            "filters": self.filters,
        }
