"""The history of a run."""

import collections
import contextlib
import json
import os
import time

import keras


class History(keras.callbacks.Callback):
    """Writes one line of `history.jsonl` every `log_every` steps, with means over those steps, and shows it.

    `expert_load` is `{block: {task: shares}}`: of the choices that the task's positions made, the share that fell on
    each expert. Label tasks, which stop after the encoder, choose none of the decoder's.

    `examples`, `tokens` (ids of real text) and `epochs` count from the first step on. `padding` is of these steps: the
    share of a task's `inputs` and `targets`, where their lengths vary, that was padding.

    With a single task, Keras names no loss of its own: its loss is then weighted, and includes those of routing.

    Args:
        file: the path of `history.jsonl`.
        model: the compiled MultiModel.
        batches: the MixedBatches that `fit` takes its steps from.
        log_every: steps of an interval.
        reporter: shows progress.

    Attributes:
        step: steps done.
        steps_since_reset: of these, how many the means are of.
        seconds: that steps took until `fit` ended, without validation and checkpoints.
    """

    def __init__(self, file, model, batches, log_every, reporter):
        super().__init__()
        self.file, self.log_every, self.reporter = file, log_every, reporter
        self.step = self.steps_since_reset = 0
        self._lines, self._unwritten = 0, ""
        self.seconds, self._start = 0.0, None
        self._batches, self._tasks = batches, list(batches.tasks)
        self._total: dict[str, collections.Counter] = {task: collections.Counter() for task in self._tasks}
        self._recent: dict[str, collections.Counter] = {task: collections.Counter() for task in self._tasks}
        # The optimizer's own attribute is a number read back from the device; the schedule is a function of the step.
        self._schedule = model.optimizer._learning_rate

    def on_train_begin(self, logs=None):
        self._start = time.monotonic()
        self.reporter.training(self.step, len(self._batches))

    def on_train_batch_end(self, batch, logs=None):
        for task, counts in self._batches.usage(self.step).items():
            self._total[task].update(counts)
            self._recent[task].update(counts)
        self.step += 1
        self.steps_since_reset += 1
        self.reporter.step(self.step, self._elapsed())
        self._logs = logs
        if self.step % self.log_every == 0:
            self._log(logs)

    def on_train_end(self, logs=None):
        if self.steps_since_reset:
            self._log(self._logs)
        self.seconds, self._start = self._elapsed(), None
        self.reporter.trained()

    def _elapsed(self):
        return self.seconds + (time.monotonic() - self._start if self._start else 0.0)

    def pause(self, seconds):
        """Takes off time that was spent on something else."""
        self.seconds -= seconds

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

    def write(self, record):
        """Appends a line to `history.jsonl`; while the disk is full, it is kept for the next time."""
        self._lines += 1
        self._unwritten += json.dumps(record) + "\n"
        with contextlib.suppress(OSError):
            before = self.file.stat().st_size if self.file.exists() else 0
            try:
                with self.file.open("a", encoding="utf-8") as lines:
                    lines.write(self._unwritten)
            except OSError:
                os.truncate(self.file, before)
                raise
            self._unwritten = ""

    def state(self):
        """All that it takes to go on: JSON values."""
        return {
            "step": self.step,
            "steps_since_reset": self.steps_since_reset,
            "seconds": self._elapsed(),
            "lines": self._lines,
            "total": self._total,
            "recent": self._recent,
        }

    def restore(self, state):
        """Goes on from a `state`; lines that were written later are dropped from the file."""
        self.step, self.steps_since_reset = state["step"], state["steps_since_reset"]
        self.seconds, self._start = state["seconds"], None
        self._lines, self._unwritten = state["lines"], ""
        for counters, saved in ((self._total, state["total"]), (self._recent, state["recent"])):
            for task in counters:
                counters[task] = collections.Counter(saved.get(task, {}))
        lines = self.file.read_bytes().splitlines(keepends=True) if self.file.exists() else []
        draft = self.file.with_name(f".{self.file.name}.draft")
        draft.write_bytes(b"".join(lines[: self._lines]))
        draft.replace(self.file)

    def _log(self, logs):
        several = len(self._tasks) > 1
        losses = {task: float(logs[f"{task}_loss" if several else "loss"]) for task in self._tasks}
        accuracies = {task: float(logs[f"{task}_accuracy" if several else "accuracy"]) for task in self._tasks}
        usage = self.usage()
        if keras.backend.backend() == "jax":
            self.model.jax_state_sync()  # Keras keeps the state of metrics and variables elsewhere during fit
        record = {
            "step": self.step,
            "seconds": round(self._elapsed(), 2),
            "loss": {task: round(value, 5) for task, value in losses.items()},
            "accuracy": {task: round(value, 5) for task, value in accuracies.items()},
            **{name: {task: usage[task][name] for task in usage} for name in ("examples", "tokens", "epochs")},
            "padding": {task: _padding(counts) for task, counts in self._recent.items()},
            "learning_rate": float(self._schedule(self.step - 1)),
            "expert_load": {
                block: {task: [round(float(share), 5) for share in shares] for task, shares in by_task.items()}
                for block, by_task in self.model.expert_load.shares().items()
            },
        }
        self.write(record)
        self.reporter.interval(record)
        self.steps_since_reset = 0
        self.model.reset_metrics()
        self.model.expert_load.reset()
        for counts in self._recent.values():
            counts.clear()


def _padding(counts):
    """`{"inputs", "targets"}`: the share of padding among the positions of a Counter of `usage_of`."""
    return {name: round(1 - counts[f"real_{name}"] / counts[name], 4) for name in ("inputs", "targets") if counts[name]}
