"""Recovery: a loss that is no number or far too large is undone, and its batch is passed over."""

import collections
import math

import keras
import numpy as np
from keras import ops

from multimodel.errors import UserError
from multimodel.training.losses import smoothed_cross_entropy

RECENT = 50  # steps that a loss is compared with
BLOW_UP = 4  # times their mean, and worse than a guess among all classes, is a blow-up
TRIES = 3  # recoveries from one checkpoint
NAMED = 3  # examples of a bad batch that are named


class FaultError(ArithmeticError):
    """A step gave a task a loss that is no number or a blow-up, or left weights that are no numbers.

    Attributes:
        step: counted from 0.
        task: its name, or None where weights are at fault.
        loss: of that step, nats.
    """

    def __init__(self, step, task, loss):
        super().__init__(f"step {step + 1}: {task or 'weights'} {loss}")
        self.step, self.task, self.loss = step, task, loss


class Guard(keras.callbacks.Callback):
    """Raises a FaultError after a step that went wrong. To be called before the means of the losses are reset.

    A loss is a blow-up if it is BLOW_UP times the mean of the last RECENT ones, and above `ln v`, that of a guess among
    all v classes.

    Args:
        signatures: `{task: Signature}`.
        history: the History, which knows the step and resets the means.
    """

    def __init__(self, signatures, history):
        super().__init__()
        self._history = history
        self._guess = {task: math.log(max(signature.num_classes, 2)) for task, signature in signatures.items()}
        self._recent: dict[str, collections.deque] = {task: collections.deque(maxlen=RECENT) for task in signatures}
        self._sums = dict.fromkeys(signatures, 0.0)

    def on_train_batch_end(self, batch, logs=None):
        steps = self._history.steps_since_reset + 1
        if steps == 1:
            self._sums = dict.fromkeys(self._sums, 0.0)
        for task, recent in self._recent.items():
            total = float(logs[f"{task}_loss" if len(self._recent) > 1 else "loss"]) * steps
            loss, self._sums[task] = total - self._sums[task], total
            if not math.isfinite(loss) or (len(recent) == RECENT and self._blown_up(task, loss)):
                raise FaultError(self._history.step, task, loss)
            recent.append(loss)

    def _blown_up(self, task, loss):
        return loss > self._guess[task] and loss > BLOW_UP * sum(self._recent[task]) / RECENT

    def state(self):
        return {"recent": {task: list(losses) for task, losses in self._recent.items()}, "sums": self._sums}

    def restore(self, state):
        for task, losses in self._recent.items():
            losses.clear()
            losses.extend(state["recent"].get(task, []))
        self._sums = {task: state["sums"].get(task, 0.0) for task in self._sums}


class Recovery:
    """Undoes what followed the last checkpoint, and passes over the batch of a fault.

    Passing over a batch may only move the fault to the next one, which may be bad as well; or the batch before them
    broke the weights. Both are then passed over.

    Args:
        run: the Run, which records it.
        checkpoints: the Checkpoints.
        model: the MultiModel.
        batches: the MixedBatches.
        saver: the Saver, which restores.
        reporter: is told.
    """

    def __init__(self, run, checkpoints, model, batches, saver, reporter):
        self._run, self._checkpoints, self._model = run, checkpoints, model
        self._batches, self._saver, self._reporter = batches, saver, reporter
        self._tries: collections.Counter = collections.Counter()

    def recover(self, fault):
        """Restores the last checkpoint, and records what is passed over.

        Raises:
            UserError: if that was done TRIES times without getting any further; the last good weights are restored.
        """
        blamed = self._blamed(fault)
        checkpoint = self._checkpoints.newest(self._reporter.warning)
        if checkpoint is None:
            raise UserError(
                f"{_described(fault)}, and no checkpoint could be written. Make room on the disk."
            ) from None
        passed_over = self._batches.passed_over | blamed
        self._saver.restore(checkpoint)
        self._batches.passed_over |= passed_over
        examples = {}
        if fault.task:
            examples = {str(batch): worst_examples(self._model, self._batches, fault.task, batch) for batch in blamed}
        record = {
            "step": fault.step + 1,
            "task": fault.task,
            "loss": str(round(fault.loss, 4)),
            "restored": checkpoint.step,
            "passed_over": sorted(blamed),
            "examples": examples,
        }
        self._run.recovered(record)
        self._tries[checkpoint.step] += 1
        if self._tries[checkpoint.step] > TRIES:
            raise UserError(
                f"{_described(fault)}, after {TRIES} tries from one checkpoint. Received: learning_rate and data that "
                f"do not go together. The weights of step {checkpoint.step} are kept; run.json names the examples. "
                f"Lower the learning rate, or look at these examples, and go on with --resume."
            ) from None
        self._reporter.recovered(_described(fault), record)

    def _blamed(self, fault):
        """Numbers of the batches to pass over."""
        first = last = self._batches.batch(fault.step)
        while first - 1 in self._batches.passed_over:
            first -= 1
        return {last} if first == last else {max(first - 1, 0), last}


def _described(fault):
    if fault.task is None:
        return f"Step {fault.step + 1} left weights that are no numbers"
    return f"Task {fault.task!r}: a loss of {fault.loss:.4g} at step {fault.step + 1}"


def worst_examples(model, batches, task, batch):
    """The examples of a task in a batch whose loss is no number, or else the largest: NAMED of them at most.

    Args:
        model: the MultiModel, in a state that works.
        batches: the MixedBatches.
        task: a name.
        batch: its number.

    Returns:
        Rows of the training split.
    """
    x, y, w = (part[task] for part in batches[batch])
    logits = model({task: x}, training=False)[task]
    losses = ops.convert_to_numpy(smoothed_cross_entropy(y, logits, 0.0)) * w
    losses = losses.sum(axis=1) / np.maximum(w.sum(axis=1), 1)
    order = np.argsort(np.where(np.isfinite(losses), -losses, -np.inf), kind="stable")[:NAMED]
    return [int(row) for row in batches.source_rows(task, batch)[order]]
