"""The loss of every task."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("multimodel")
class SmoothedCrossEntropy(keras.losses.Loss):
    """Cross-entropy with label smoothing: `1 - s` of the probability on the truth, `s / (v - 1)` on each other class.

    The mean over target positions, weighted.

    Args:
        smoothing: s.

    Shapes: targets `(b, m)` integers, logits `(b, m, v)`, weights `(b, m)` -> scalar, nats per position.
    """

    def __init__(self, smoothing=0.0, name="smoothed_cross_entropy", **kwargs):
        super().__init__(name=name, reduction="mean_with_sample_weight", **kwargs)
        self.smoothing = smoothing

    def call(self, targets, logits):
        logits = ops.cast(logits, "float32")
        log_sum = ops.logsumexp(logits, axis=-1)
        truth = ops.take_along_axis(logits, ops.cast(targets, "int32")[..., None], axis=-1)[..., 0]
        loss = log_sum - truth
        if not self.smoothing:
            return loss
        classes = logits.shape[-1]
        others = self.smoothing / max(classes - 1, 1)
        everywhere = classes * log_sum - ops.sum(logits, axis=-1)  # - sum of all log-probabilities
        return (1 - self.smoothing - others) * loss + others * everywhere

    def get_config(self):
        return super().get_config() | {"smoothing": self.smoothing}
