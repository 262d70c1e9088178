"""Keras callbacks of the training loop."""

import json
import signal
import threading
import time

import keras


class History(keras.callbacks.Callback):
    """Writes one line of `history.jsonl` every `log_every` steps, with means over those steps, and shows it.

    `expert_load` is `{block: {task: shares}}`: of the choices that the task's positions made, the share that fell on
    each expert. Label tasks, which stop after the encoder, choose none of the decoder's.

    With a single task, Keras names no loss of its own: its loss is then weighted, and includes those of routing.

    Args:
        file: the path of `history.jsonl`.
        model: the compiled MultiModel.
        shares: `{task: examples of a step}`.
        steps: of the whole run.
        log_every: steps of an interval.
        reporter: shows progress.
    """

    def __init__(self, file, model, shares, steps, log_every, reporter):
        super().__init__()
        self.file, self.shares, self.steps, self.log_every = file, shares, steps, log_every
        self.reporter = reporter
        self.step = 0
        # The optimizer's own attribute is a number read back from the device; the schedule is a function of the step.
        self._schedule = model.optimizer._learning_rate

    def on_train_begin(self, logs=None):
        self._start = time.monotonic()
        self.reporter.training(self.steps)

    def on_train_batch_end(self, batch, logs=None):
        self.step += 1
        self.reporter.step(self.step, time.monotonic() - self._start)
        self._logs = logs
        if self.step % self.log_every == 0:
            self._log(logs)

    def on_train_end(self, logs=None):
        if self.step % self.log_every:
            self._log(self._logs)
        self.reporter.trained()

    def _log(self, logs):
        losses = {task: float(logs[f"{task}_loss" if len(self.shares) > 1 else "loss"]) for task in self.shares}
        accuracies = {
            task: float(logs[f"{task}_accuracy" if len(self.shares) > 1 else "accuracy"]) for task in self.shares
        }
        if keras.backend.backend() == "jax":
            self.model.jax_state_sync()  # Keras keeps the state of metrics and variables elsewhere during fit
        record = {
            "step": self.step,
            "seconds": round(time.monotonic() - self._start, 2),
            "loss": {task: round(value, 5) for task, value in losses.items()},
            "accuracy": {task: round(value, 5) for task, value in accuracies.items()},
            "examples": {task: share * self.step for task, share in self.shares.items()},
            "learning_rate": float(self._schedule(self.step - 1)),
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
