"""The history of a run."""

import collections
import contextlib
import json
import os

import keras

from multimodel.backend import sync_state
from multimodel.memory import resident_mb
from multimodel.training.adam import adam_of
from multimodel.training.pace import Pace


class History(keras.callbacks.Callback):
    """Writes one line of `history.jsonl` every `log_every` steps, with means over those steps, and tells its listeners.

    `expert_load` is `{block: {task: shares}}`: of the choices that the task's positions made, the share that fell on
    each expert. Label tasks, which stop after the encoder, choose none of the decoder's.

    `examples`, `tokens` (ids of real text) and `epochs` count from the first step on. `padding` is of these steps: the
    share of a task's `inputs` and `targets`, where their lengths vary, that was padding. `steps_per_second` is over the
    latest 100 steps, and `memory_mb` what of the process lies in memory.

    Keras' running means, which callbacks after this one also get, begin anew with the step after a line.

    `loss` is the plain one of each task; `loss_weight`, where weights are learned, is what it counts for.

    With a single task, Keras names no loss of its own: its loss is then weighted, and includes those of routing.

    Args:
        file: the path of `history.jsonl`.
        model: the compiled MultiModel.
        batches: the MixedBatches that `fit` takes its steps from.
        log_every: steps of an interval.
        listeners: Listeners, told of each step and each line.

    Attributes:
        step: steps done.
        steps_since_reset: of these, how many the running means are of.
        seconds: that they took, without validation, checkpoints, and what was done again.
    """

    def __init__(self, file, model, batches, log_every, listeners):
        super().__init__()
        self.file, self.log_every, self._listeners = file, log_every, listeners
        self.step = self.steps_since_reset = 0
        self.seconds = 0.0
        self._lines, self._unwritten = 0, ""
        self._batches, self._tasks = batches, list(batches.tasks)
        self._total: dict[str, collections.Counter] = {task: collections.Counter() for task in self._tasks}
        self._recent: dict[str, collections.Counter] = {task: collections.Counter() for task in self._tasks}
        # The optimizer's own attribute is a number read back from the device; the schedule is a function of the step.
        self._schedule = adam_of(model)._learning_rate

    def on_train_begin(self, logs=None):
        self._pace = Pace(self.seconds)
        for listener in self._listeners:
            listener.begin(self.step, len(self._batches))

    def on_train_batch_begin(self, batch, logs=None):
        # Not before: callbacks after this one get the means of the whole interval.
        if self.step % self.log_every == 0 or not self.steps_since_reset:
            self.model.reset_metrics()
            self.model.expert_load.reset()
            self.steps_since_reset = 0

    def on_train_batch_end(self, batch, logs=None):
        for task, counts in self._batches.usage(self.step).items():
            self._total[task].update(counts)
            self._recent[task].update(counts)
        self.step += 1
        self.steps_since_reset += 1
        self._pace.step()
        self.seconds = self._pace.seconds
        self._glance = self._glance_of(logs)
        for listener in self._listeners:
            listener.step(self._glance)
        if self.step % self.log_every == 0:
            self._log()

    def on_train_end(self, logs=None):
        if self.step % self.log_every and self.steps_since_reset:
            self._log()

    def validated(self, record):
        """Writes the scores of a validation, and tells the listeners."""
        self.write(record)
        for listener in self._listeners:
            listener.validation(record)

    def write(self, record):
        """Appends a line to `history.jsonl`; while the disk is full, it is kept for the next time."""
        self._lines += 1
        self._unwritten += json.dumps(record) + "\n"
        with contextlib.suppress(OSError):
            before = self.file.stat().st_size if self.file.exists() else 0
            try:
                with self.file.open("a", encoding="utf-8") as lines:
                    lines.write(self._unwritten)
                    lines.flush()
                    os.fsync(lines.fileno())
            except OSError:
                os.truncate(self.file, before)
                raise
            self._unwritten = ""

    def pause(self, seconds):
        """Takes off time that was spent on something else than steps."""
        self._pace.pause(seconds)

    def state(self):
        """All that it takes to go on: JSON values."""
        return {
            "step": self.step,
            "steps_since_reset": self.steps_since_reset,
            "seconds": self.seconds,
            "lines": self._lines,
            "unwritten": self._unwritten,
            "total": self._total,
            "recent": self._recent,
        }

    def restore(self, state):
        """Goes on from a `state`; lines that were written later are dropped from the file."""
        self.step, self.steps_since_reset = state["step"], state["steps_since_reset"]
        self.seconds, self._lines, self._unwritten = state["seconds"], state["lines"], state["unwritten"]
        for counters, saved in ((self._total, state["total"]), (self._recent, state["recent"])):
            for task in counters:
                counters[task] = collections.Counter(saved.get(task, {}))
        lines = self.file.read_bytes().splitlines(keepends=True) if self.file.exists() else []
        draft = self.file.with_name(f".{self.file.name}.draft")
        draft.write_bytes(b"".join(lines[: self._lines - self._unwritten.count("\n")]))
        draft.replace(self.file)

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
        sync_state(self.model)
        record = self._glance | {
            "padding": {task: _padding(counts) for task, counts in self._recent.items()},
            "learning_rate": float(self._schedule(self.step - 1)),
            **_learned_weights(self.model),
            "memory_mb": resident_mb(),
            "expert_load": {
                block: {task: [round(float(share), 5) for share in shares] for task, shares in by_task.items()}
                for block, by_task in self.model.expert_load.shares().items()
            },
        }
        self.write(record)
        for listener in self._listeners:
            listener.interval(record)
        for counts in self._recent.values():
            counts.clear()


def _learned_weights(model):
    """`{"loss_weight": {task: weight}}` where they are learned, else nothing."""
    weights = {task: round(weight.value(), 5) for task, weight in model.loss_weights().items()}
    return {"loss_weight": weights} if weights else {}


def _padding(counts):
    """`{"inputs", "targets"}`: the share of padding among the positions of a Counter of `usage_of`."""
    return {name: round(1 - counts[f"real_{name}"] / counts[name], 4) for name in ("inputs", "targets") if counts[name]}
