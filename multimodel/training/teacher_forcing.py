"""Scores of the logits that a model gives when it reads the right targets so far, as the paper's tables have them."""

import keras
from keras import ops

from multimodel.backend import compile_for_backend, predict_in_chunks
from multimodel.tasks.batches import features_of, weights_of


class TeacherForcing(keras.Model):
    """How one task's model judges the right targets; `predict_on_batch` runs it compiled.

    Args:
        model: a MultiModel.
        task: name of one of its tasks.

    Shapes: features `{"inputs" (b, ...), "inputs_mask" (b, ...), "targets" (b, m)}` -> `{"nats" (b, m), "rank"
    (b, m)}`: the negative log-probability of each target, and how many other classes are as probable or more.
    """

    def __init__(self, model, task):
        super().__init__(name=f"teacher_forcing_{task}")
        self.model, self.task = model, task
        self.built = True
        compile_for_backend(self)

    def call(self, features):
        logits = ops.cast(self.model({self.task: features})[self.task], "float32")
        truth = ops.take_along_axis(logits, ops.cast(features["targets"], "int32")[..., None], axis=-1)
        behind = ops.sum(ops.cast(logits < truth, "int32"), axis=-1)
        rank = logits.shape[-1] - 1 - behind  # a tie counts against the target, and so does NaN
        return {"nats": ops.logsumexp(logits, axis=-1) - truth[..., 0], "rank": rank}


class TeacherForcedScores:
    """Sums over any number of EncodedParts of one task.

    Args:
        model: a MultiModel.
        task: a Task.
    """

    def __init__(self, model, task):
        self._task, self._forced = task, TeacherForcing(model, task.name)
        self._sums = dict.fromkeys(FORCED_METRICS, 0.0)
        self._positions = 0.0

    def add(self, examples):
        features = features_of(examples.inputs, examples.input_lengths) | {"targets": examples.targets}
        outputs, weights = predict_in_chunks(self._forced, features), weights_of(self._task, examples.targets)
        for name, value in FORCED_METRICS.items():
            self._sums[name] += float((value(outputs) * weights).sum())
        self._positions += float(weights.sum())

    def scores(self, names):
        """`{metric: mean over real target positions}`, rounded to five digits."""
        return {name: round(self._sums[name] / self._positions, 5) for name in names}


FORCED_METRICS = {
    "token_accuracy": lambda outputs: outputs["rank"] == 0,
    "top5": lambda outputs: outputs["rank"] < 5,
    "log_perplexity": lambda outputs: outputs["nats"],
}
