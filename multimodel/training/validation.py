"""Scores on held-out data while training: the best weights, and when to stop early."""

import math
import time

import keras

from multimodel.backend import sync_state
from multimodel.errors import UserError, unknown
from multimodel.training.ema import averaged_weights
from multimodel.training.evaluate import evaluate

SPLIT = "validation"
LIMIT = 200  # examples of each task


class Validation(keras.callbacks.Callback):
    """Scores the validation split every so many steps, from generated output, and writes a line of `history.jsonl`.

    Args:
        recipe: a Recipe with `validate_every`, `monitor` and `patience`.
        bundle: the Bundle that is trained.
        history: the History, which knows the step and writes the line.
        reporter: shows the scores.

    Attributes:
        improved: whether the scores after the step at hand are the best so far.
        exhausted: whether there were `patience` validations in a row without a better one.
    """

    def __init__(self, recipe, bundle, history, reporter):
        super().__init__()
        self._every, self._monitor, self._patience = recipe.validate_every, recipe.monitor, recipe.patience
        self._bundle, self._history, self._reporter = bundle, history, reporter
        self._tasks = _validated(recipe)
        self._best, self._waited = -math.inf, 0
        self.improved = self.exhausted = False

    def on_train_batch_end(self, batch, logs=None):
        step = self._history.step
        self.improved = False
        if step % self._every:
            return
        begin = time.monotonic()
        sync_state(self.model)
        with averaged_weights(self.model):
            results = evaluate(self._bundle, self._tasks, SPLIT, LIMIT)
        scores = {
            name: {metric: results[name][metric] for metric in task.metrics} for name, task in self._tasks.items()
        }
        value = monitored(self._monitor, scores)
        self.improved = value > self._best
        self._former = self._best, self._waited
        self._best, self._waited = (value, 0) if self.improved else (self._best, self._waited + 1)
        self._history.validated({"step": step, "validation": scores, "monitored": round(value, 5)})
        self._history.pause(time.monotonic() - begin)
        self._reporter.validated(step, scores, self.improved)
        if self._patience and self._waited >= self._patience:
            self.exhausted = self.model.stop_training = True

    def state(self):
        return {"best": None if math.isinf(self._best) else self._best, "waited": self._waited}

    def restore(self, state):
        self._best = -math.inf if state["best"] is None else state["best"]
        self._waited = state["waited"]
        self.exhausted = bool(self._patience) and self._waited >= self._patience

    def begin_anew(self):
        """Forgets all scores so far: those to come are not comparable."""
        self._best, self._waited, self.exhausted = -math.inf, 0, False

    def forget(self):
        """Forgets the latest scores: their weights could not be kept."""
        self._best, self._waited = self._former


def monitored(monitor, scores):
    """One number, the larger the better, of `{task: {metric: value}}`.

    Args:
        monitor: "mean", of the first metric of each task; or "TASK/METRIC".
        scores: as given by `evaluate`, without the baselines.
    """
    if monitor != "mean":
        task, metric = monitor.split("/")
        return goodness(metric, scores[task][metric])
    return sum(goodness(*next(iter(of_task.items()))) for of_task in scores.values()) / len(scores)


def goodness(metric, value):
    """A score between 0 and 1, the larger the better: error rates count as 1 - rate, at least 0; BLEU and chrF are
    divided by 100; of log-perplexity, it is the probability of a token."""
    if metric in ("wer", "cer"):
        return max(0.0, 1 - value)
    if metric in ("bleu", "chrf"):
        return value / 100
    return math.exp(-value) if metric == "log_perplexity" else value


def check_validation(recipe):
    """Makes sure that a recipe with `validate_every` can be validated.

    Raises:
        UserError: if no task has a validation split, or `monitor` names no task that has one, or no metric of it.
    """
    if not recipe.validate_every:
        return
    tasks = _validated(recipe)
    if not tasks:
        raise UserError(
            f"Validation reads a split named {SPLIT!r}. Received: validate_every={recipe.validate_every}, and no task "
            f"with that split. Add one to a source, or leave validate_every out."
        )
    known = {f"{task.name}/{metric}" for task in tasks.values() for metric in task.metrics} | {"mean"}
    if recipe.monitor not in known:
        raise unknown("monitor", recipe.monitor, known)


def _validated(recipe):
    return {name: task for name, task in recipe.mixture.tasks.items() if SPLIT in task.source.splits}
