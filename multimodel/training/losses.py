"""The loss of every task."""

import math

import keras
from keras import ops

AT_ONCE = 2**20  # logits that are taken to float32 at a time


@keras.saving.register_keras_serializable("multimodel")
class SmoothedCrossEntropy(keras.losses.Loss):
    """Cross-entropy with label smoothing: `1 - s` of the probability on the truth, `s / (v - 1)` on each other class.

    The mean over target positions, weighted. It is computed in float32 and with its own gradient, some positions at a
    time: there is no float32 copy of all logits where they come in bfloat16.

    Args:
        smoothing: s.
        weight: a LossWeight that the mean passes through, or None.

    Shapes: targets `(b, m)` integers, logits `(b, m, v)`, weights `(b, m)` -> scalar, nats per position.
    """

    def __init__(self, smoothing=0.0, weight=None, name="smoothed_cross_entropy", **kwargs):
        super().__init__(name=name, reduction="mean_with_sample_weight", **kwargs)
        self.smoothing, self.weight = smoothing, weight

    def __call__(self, targets, logits, sample_weight=None):
        # Keras casts what it is given to float32: losses rather than logits.
        loss = super().__call__(targets, smoothed_cross_entropy(targets, logits, self.smoothing), sample_weight)
        return loss if self.weight is None else self.weight(loss)

    def call(self, targets, losses):
        return losses

    def get_config(self):
        return super().get_config() | {"smoothing": self.smoothing}


def smoothed_cross_entropy(targets, logits, smoothing):
    """The loss of each position: targets `(b, m)`, logits `(b, m, v)` -> `(b, m)` float32."""
    targets, logits = ops.cast(targets, "int32"), ops.convert_to_tensor(logits)
    classes, dtype = logits.shape[-1], logits.dtype
    elsewhere = smoothing / max(classes - 1, 1)  # of the probability, on each other class
    # Gradients are 1 at most, and many are small: float16 has 0 for what is below 6e-8.
    scale = 1024.0 if keras.backend.standardize_dtype(dtype) == "float16" else None

    def loss_and_gradient(targets, logits):
        logits = ops.cast(logits, "float32")
        highest = ops.max(logits, axis=-1, keepdims=True)
        exponentials = ops.exp(logits - highest)
        total = ops.sum(exponentials, axis=-1, keepdims=True)
        wanted = ops.one_hot(targets, classes) * (1 - smoothing - elsewhere) + elsewhere
        loss = ops.log(total) + highest - ops.sum(wanted * logits, axis=-1, keepdims=True)
        gradient = exponentials / total - wanted
        return loss[..., 0], ops.cast(gradient * scale if scale else gradient, dtype)

    @ops.custom_gradient
    def loss_of(logits):
        loss, gradient = _by_rows(loss_and_gradient, targets, logits)
        return loss, lambda upstream: gradient * ops.cast(upstream / scale if scale else upstream, dtype)[..., None]

    return loss_of(logits)


def _by_rows(function, targets, logits):
    """`function(targets, logits)`, as many rows of the batch at a time as have AT_ONCE logits together."""
    if keras.backend.backend() == "jax" or None in logits.shape or math.prod(logits.shape) <= AT_ONCE:
        return function(targets, logits)  # XLA makes no copies
    batch_size, *row = logits.shape
    rows = max(1, AT_ONCE // math.prod(row))
    rows = next(divisor for divisor in range(rows, 0, -1) if batch_size % divisor == 0)
    parts = (ops.reshape(x, (-1, rows, *x.shape[1:])) for x in (targets, logits))
    loss, gradient = ops.map(lambda part: function(*part), tuple(parts))
    return ops.reshape(loss, targets.shape), ops.reshape(gradient, logits.shape)
