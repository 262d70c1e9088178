"""Keras callbacks of the training loop."""

import collections
import json
import signal
import threading
import time

import keras

from multimodel.training.adam import adam_of


class History(keras.callbacks.Callback):
    """Writes one line of `history.jsonl` every `log_every` steps, with means over those steps, and shows it.

    `expert_load` is `{block: {task: shares}}`: of the choices that the task's positions made, the share that fell on
    each expert. Label tasks, which stop after the encoder, choose none of the decoder's.

    `examples`, `tokens` (ids of real text) and `epochs` count from the first step on. `padding` is of these steps: the
    share of a task's `inputs` and `targets`, where their lengths vary, that was padding.

    `loss` is the plain one of each task; `loss_weight`, where weights are learned, is what it counts for.

    With a single task, Keras names no loss of its own: its loss is then weighted, and includes those of routing.

    Args:
        file: the path of `history.jsonl`.
        model: the compiled MultiModel.
        batches: the MixedBatches that `fit` takes its steps from.
        log_every: steps of an interval.
        reporter: shows progress.
    """

    def __init__(self, file, model, batches, log_every, reporter):
        super().__init__()
        self.file, self.log_every, self.reporter = file, log_every, reporter
        self.step = 0
        self._batches, self._tasks = batches, list(batches.tasks)
        self._total: dict[str, collections.Counter] = {task: collections.Counter() for task in self._tasks}
        self._recent: dict[str, collections.Counter] = {task: collections.Counter() for task in self._tasks}
        # The optimizer's own attribute is a number read back from the device; the schedule is a function of the step.
        self._schedule = adam_of(model)._learning_rate

    def on_train_begin(self, logs=None):
        self._start = time.monotonic()
        self.reporter.training(len(self._batches))

    def on_train_batch_end(self, batch, logs=None):
        for task, counts in self._batches.usage(self.step).items():
            self._total[task].update(counts)
            self._recent[task].update(counts)
        self.step += 1
        self.reporter.step(self.step, time.monotonic() - self._start)
        self._logs = logs
        if self.step % self.log_every == 0:
            self._log(logs)

    def on_train_end(self, logs=None):
        if self.step % self.log_every:
            self._log(self._logs)
        self.reporter.trained()

    def usage(self):
        """`{task: {"examples", "tokens", "epochs", "padding"}}` since the first step."""
        return {
            task: {
                "examples": counts["examples"],
                "tokens": counts["tokens"],
                "epochs": round(counts["examples"] / len(self._batches.examples[task]), 3),
                "padding": _padding(counts),
            }
            for task, counts in self._total.items()
        }

    def _log(self, logs):
        several = len(self._tasks) > 1
        losses = {task: float(logs[f"{task}_loss" if several else "loss"]) for task in self._tasks}
        accuracies = {task: float(logs[f"{task}_accuracy" if several else "accuracy"]) for task in self._tasks}
        usage = self.usage()
        if keras.backend.backend() == "jax":
            self.model.jax_state_sync()  # Keras keeps the state of metrics and variables elsewhere during fit
        record = {
            "step": self.step,
            "seconds": round(time.monotonic() - self._start, 2),
            "loss": {task: round(value, 5) for task, value in losses.items()},
            "accuracy": {task: round(value, 5) for task, value in accuracies.items()},
            **{name: {task: usage[task][name] for task in usage} for name in ("examples", "tokens", "epochs")},
            "padding": {task: _padding(counts) for task, counts in self._recent.items()},
            "learning_rate": float(self._schedule(self.step - 1)),
            **_learned_weights(self.model),
            "expert_load": {
                block: {task: [round(float(share), 5) for share in shares] for task, shares in by_task.items()}
                for block, by_task in self.model.expert_load.shares().items()
            },
        }
        with self.file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(record) + "\n")
        self.reporter.interval(record)
        self.model.reset_metrics()
        self.model.expert_load.reset()
        for counts in self._recent.values():
            counts.clear()


def _learned_weights(model):
    """`{"loss_weight": {task: weight}}` where they are learned, else nothing."""
    weights = {task: round(weight.value(), 5) for task, weight in model.loss_weights().items()}
    return {"loss_weight": weights} if weights else {}


def _padding(counts):
    """`{"inputs", "targets"}`: the share of padding among the positions of a Counter of `usage_of`."""
    return {name: round(1 - counts[f"real_{name}"] / counts[name], 4) for name in ("inputs", "targets") if counts[name]}


class StopOnInterrupt:
    """While it is entered, Ctrl-C ends `fit` after the step at hand; a second one ends it at once."""

    def __init__(self, reporter):
        self._reporter = reporter
        self._asked = False
        self.callback = keras.callbacks.LambdaCallback(on_train_batch_end=self._stop_if_asked)

    def __enter__(self):
        self._handler = None
        if threading.current_thread() is threading.main_thread():
            self._handler = signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(self, *error):
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)

    def _ask(self, number, frame):
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
        self._reporter.stopping()

    def _stop_if_asked(self, batch, logs):
        if self._asked:
            self.callback.model.stop_training = True
