"""The contracts of modality nets: what stands between raw arrays and the body."""

import keras
from keras import ops


class _Net(keras.layers.Layer):
    def compute_mask(self, *arguments):
        """None: masks are arguments. Keras would hang its own on the outputs, and weigh losses by them."""


class InputNet(_Net):
    """Raw arrays of one modality in, a sequence of vectors of the body's width out.

    Contract:
        `call(inputs, mask)` -> `(vectors (b, n, d), mask (b, n))`. Masks are boolean, True = real; without one
        coming in, all inputs are. A net that shortens the sequence shortens the mask with it. What stands under the
        mask, and the other rows of the batch, never change a real vector.
    """

    def grid(self, shape):
        """Shape of one input -> (rows, columns) of its vectors, or None where they are a sequence."""


class OutputNet(_Net):
    """Vectors of the body in, logits of one target space out.

    Contract:
        `call(vectors, mask)`: `(b, m, d)` -> logits `(b, m, v)`. `reads` says which vectors: the `"decoded"` targets,
        or the `"encoded"` inputs, for targets that need no decoder; then m = 1. A net that reads `"decoded"` also
        gives `embed(targets)`: `(b, m)` integers -> `(b, m, d)`.
    """

    reads = "decoded"


def masked_mean(x, mask=None):
    """Mean of `x (b, n, d)` over real positions, `(b, 1, d)`, summed in float32; zero where there is none."""
    dtype, x = x.dtype, ops.cast(x, "float32")
    real = ops.ones_like(x[..., :1]) if mask is None else ops.cast(mask, "float32")[..., None]
    mean = ops.sum(x * real, axis=1, keepdims=True) / ops.maximum(ops.sum(real, axis=1, keepdims=True), 1)
    return ops.cast(mean, dtype)
