"""Keras callbacks of the training loop."""

import collections
import json
import signal
import threading

import keras

from multimodel.memory import resident_mb
from multimodel.training.pace import Pace


class History(keras.callbacks.Callback):
    """Writes one line of `history.jsonl` every `log_every` steps, with means over those steps, and tells its listeners.

    `expert_load` is `{block: {task: shares}}`: of the choices that the task's positions made, the share that fell on
    each expert. Label tasks, which stop after the encoder, choose none of the decoder's.

    `examples`, `tokens` (ids of real text) and `epochs` count from the first step on. `padding` is of these steps: the
    share of a task's `inputs` and `targets`, where their lengths vary, that was padding. `steps_per_second` is over the
    latest 100 steps, and `memory_mb` what of the process lies in memory.

    Keras' running means, which callbacks after this one also get, begin anew with the step after a line.

    With a single task, Keras names no loss of its own: its loss is then weighted, and includes those of routing.

    Args:
        file: the path of `history.jsonl`.
        model: the compiled MultiModel.
        batches: the MixedBatches that `fit` takes its steps from.
        log_every: steps of an interval.
        listeners: Listeners, told of each step and each line.
    """

    def __init__(self, file, model, batches, log_every, listeners):
        super().__init__()
        self.file, self.log_every, self._listeners = file, log_every, listeners
        self.step = 0
        self._batches, self._tasks = batches, list(batches.tasks)
        self._total: dict[str, collections.Counter] = {task: collections.Counter() for task in self._tasks}
        self._recent: dict[str, collections.Counter] = {task: collections.Counter() for task in self._tasks}
        # The optimizer's own attribute is a number read back from the device; the schedule is a function of the step.
        self._schedule = model.optimizer._learning_rate

    def on_train_begin(self, logs=None):
        self._pace = Pace()
        for listener in self._listeners:
            listener.begin(self.step, len(self._batches))

    def on_train_batch_begin(self, batch, logs=None):
        if self.step % self.log_every == 0:  # not before: callbacks after this one get the means of the whole interval
            self.model.reset_metrics()
            self.model.expert_load.reset()

    def on_train_batch_end(self, batch, logs=None):
        for task, counts in self._batches.usage(self.step).items():
            self._total[task].update(counts)
            self._recent[task].update(counts)
        self.step += 1
        self._pace.step()
        self._glance = self._glance_of(logs)
        for listener in self._listeners:
            listener.step(self._glance)
        if self.step % self.log_every == 0:
            self._log()

    def on_train_end(self, logs=None):
        if self.step % self.log_every:
            self._log()

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

    def _glance_of(self, logs):
        """What is known after every step, as in a record."""
        several = len(self._tasks) > 1
        means = {
            name: {task: round(float(logs[f"{task}_{name}" if several else name]), 5) for task in self._tasks}
            for name in ("loss", "accuracy")
        }
        usage = self.usage()
        counts = {name: {task: usage[task][name] for task in usage} for name in ("examples", "tokens", "epochs")}
        rate = float(f"{self._pace.steps_per_second:.4g}")  # of hours a step, too
        pace = {"seconds": round(self._pace.seconds, 2), "steps_per_second": rate}
        return {"step": self.step} | pace | means | counts

    def _log(self):
        if keras.backend.backend() == "jax":
            self.model.jax_state_sync()  # Keras keeps the state of metrics and variables elsewhere during fit
        record = self._glance | {
            "padding": {task: _padding(counts) for task, counts in self._recent.items()},
            "learning_rate": float(self._schedule(self.step - 1)),
            "memory_mb": resident_mb(),
            "expert_load": {
                block: {task: [round(float(share), 5) for share in shares] for task, shares in by_task.items()}
                for block, by_task in self.model.expert_load.shares().items()
            },
        }
        with self.file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(record) + "\n")
        for listener in self._listeners:
            listener.interval(record)
        for counts in self._recent.values():
            counts.clear()


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
