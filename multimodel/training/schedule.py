"""Learning rates over the steps of a run."""

import math

import keras
from keras import ops

from multimodel.errors import unknown

DECAY_STEPS, DECAY = 500_000, 0.9999955


@keras.saving.register_keras_serializable("multimodel")
class ExponentialTail(keras.optimizers.schedules.LearningRateSchedule):
    """The schedule of the paper's first public code: exponential warm-up, a long plateau, an exponential tail.

    `peak * 0.01^((warmup - step) / warmup)` before `warmup_steps`, then `peak`, and in the last 500,000 steps after
    warm-up `peak * 0.9999955^(steps into the tail)`, a whole one down to a tenth of the peak.

    Args:
        peak: largest learning rate.
        warmup_steps: steps from a hundredth of the peak to the peak.
        steps: of the whole run.
    """

    def __init__(self, peak, warmup_steps, steps):
        self.peak, self.warmup_steps, self.steps = peak, warmup_steps, steps

    def __call__(self, step):
        step = ops.cast(step, "float32")
        warming = 0.01 ** (ops.maximum(self.warmup_steps - step, 0.0) / max(self.warmup_steps, 1))
        tail_start = max(self.warmup_steps, self.steps - DECAY_STEPS)
        return self.peak * warming * ops.exp(math.log(DECAY) * ops.maximum(step - tail_start, 0.0))

    def get_config(self):
        return {"peak": self.peak, "warmup_steps": self.warmup_steps, "steps": self.steps}


@keras.saving.register_keras_serializable("multimodel")
class InverseSqrt(keras.optimizers.schedules.LearningRateSchedule):
    """The schedule of the Transformer (arXiv 1706.03762, section 5.3) with a peak of one's choice.

    `peak * step / warmup_steps` up to `warmup_steps`, then `peak * sqrt(warmup_steps / step)`.

    Args:
        peak: largest learning rate.
        warmup_steps: steps from 0 to the peak; without any, it begins at the peak, and falls as after one.
    """

    def __init__(self, peak, warmup_steps):
        self.peak, self.warmup_steps = peak, warmup_steps

    def __call__(self, step):
        step, warm = ops.cast(step, "float32"), float(max(self.warmup_steps, 1))
        warming = ops.minimum(step / warm, 1.0) if self.warmup_steps else 1.0
        return self.peak * warming * ops.sqrt(warm / ops.maximum(step, warm))

    def get_config(self):
        return {"peak": self.peak, "warmup_steps": self.warmup_steps}


def _cosine(peak, warmup_steps, steps, lowest=0.0):
    return keras.optimizers.schedules.CosineDecay(
        initial_learning_rate=0.0,
        decay_steps=steps - warmup_steps,
        alpha=lowest,
        warmup_target=peak,
        warmup_steps=warmup_steps,
    )


SCHEDULES = {
    "constant": lambda peak, warmup_steps, steps: _cosine(peak, warmup_steps, steps, lowest=1.0),  # of the peak: all
    "cosine": _cosine,
    "exponential_tail": ExponentialTail,
    "inverse_sqrt": lambda peak, warmup_steps, steps: InverseSqrt(peak, warmup_steps),
}


def check_schedule(name):
    """Raises a UserError for a name that is no schedule."""
    if name not in SCHEDULES:
        raise unknown("schedule", name, SCHEDULES)


def make_schedule(recipe):
    """The learning rate schedule of a recipe; at most half of its steps are warm-up."""
    warmup_steps = min(recipe.warmup_steps, recipe.steps // 2)
    return SCHEDULES[recipe.schedule](recipe.learning_rate, warmup_steps, recipe.steps)
