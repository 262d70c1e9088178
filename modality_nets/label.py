"""Labels out: one class for the whole input, read from the encoder."""

import keras

from modality_nets.base import OutputNet, masked_mean


@keras.saving.register_keras_serializable("multimodel")
class LabelOutputNet(OutputNet):
    """`logits = mean_t(relu(encoded_t W)) V + b`. It reads the encoder, so label tasks skip mixer and decoder.

    Args:
        num_classes: classes.
        dim: the body's width.
        hidden_dim: channels before the mean; `2 * dim` if None.

    Shapes: `(b, n, dim)` with `mask (b, n)` -> `(b, 1, num_classes)`.
    """

    reads = "encoded"

    def __init__(self, num_classes, dim, hidden_dim=None, **kwargs):
        super().__init__(**kwargs)
        self.num_classes, self.dim, self.hidden_dim = num_classes, dim, hidden_dim or 2 * dim
        self.hidden = keras.layers.Dense(self.hidden_dim, activation="relu", dtype=self.dtype_policy, name="hidden")
        self.classes = keras.layers.Dense(num_classes, dtype=self.dtype_policy, name="classes")

    def build(self, *shapes, **kwargs):
        self.hidden.build((None, None, self.dim))
        self.classes.build((None, None, self.hidden_dim))
        self.built = True

    def call(self, vectors, mask=None):
        return self.classes(masked_mean(self.hidden(vectors), mask))

    def get_config(self):
        return super().get_config() | {
            "num_classes": self.num_classes,
            "dim": self.dim,
            "hidden_dim": self.hidden_dim,
        }
