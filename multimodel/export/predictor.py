"""Predictor: what a run and an export have in common, raw inputs in, outputs out."""

import dataclasses
import pathlib
from typing import Any

from multimodel.errors import UserError, unknown
from multimodel.tasks.features import UnreadableInputError


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What came of one input: an output, or the error that kept it from being read.

    Attributes:
        output: text, or the name of a label.
        score: its log-probability in nats.
        error: a line, or None.
        n_best: `(output, score)` of the best outputs, the one above first.
    """

    output: str | None
    score: float | None
    error: str | None = None
    n_best: tuple[tuple[str, float], ...] = ()


class Predictor:
    """Reads raw inputs, answers those that can be read, and says of the others why they cannot.

    Attributes:
        tasks: `{name: Signature}`.
        inputs: `{name: feature}`.
    """

    tasks: dict[str, Any]
    inputs: dict[str, Any]

    def search(self, task, **changes):
        """The Search of a task with some of its fields changed, those that are not None.

        Raises:
            UserError: if there is no such task, or a number is out of its range.
        """
        if task not in self.tasks:
            raise unknown("task", task, self.tasks)
        changes = {name: value for name, value in changes.items() if value is not None}
        return dataclasses.replace(self.tasks[task].search, **changes)

    def predict(self, task, inputs, search=None):
        """Outputs for raw inputs: paths, bytes, PIL images, arrays or str, as the task reads.

        Args:
            task: name of a task.
            inputs: a list.
            search: a Search; the task's own if None.

        Returns:
            A list of str: text, or names of labels.

        Raises:
            UserError: if there is no such task, or an input cannot be read; the message names it.
        """
        predictions = self.try_predict(task, inputs, search)
        for value, prediction in zip(inputs, predictions, strict=True):
            if prediction.error:
                raise UserError(f"{_shown(value)}: {prediction.error}")
        return [prediction.output for prediction in predictions]

    def try_predict(self, task, inputs, search=None, n_best=1):
        """A Prediction for each raw input; one that cannot be read does not keep the others from being answered.

        Args:
            task, inputs, search: as for `predict`.
            n_best: outputs of each: those of the best beams, or so many draws, or labels.
        """
        if task not in self.tasks:
            raise unknown("task", task, self.tasks)
        if isinstance(inputs, str | bytes | pathlib.PurePath):
            raise UserError(f"Inputs are a list. Received: inputs={_shown(inputs)}. Put it into one: [input].")
        results: list[Prediction | None] = [None] * len(inputs)
        values, rows = [], []
        for row, value in enumerate(inputs):
            try:
                values.append(self.inputs[task].read(value))
                rows.append(row)
            except UnreadableInputError as error:
                results[row] = Prediction(None, None, str(error))
        if values:
            for row, prediction in zip(rows, self.answer(task, values, search, n_best), strict=True):
                results[row] = prediction
        return results

    def answer(self, task, values, search, n_best):
        """A Prediction for each canonical value of a list with at least one."""
        raise NotImplementedError


def predictions_of(outputs, scores):
    """Predictions of outputs `(b, n_best)` and scores `(b, n_best)`."""
    pairs = [tuple(zip(texts, map(float, values), strict=True)) for texts, values in zip(outputs, scores, strict=True)]
    return [Prediction(best[0][0], best[0][1], None, best) for best in pairs]


def _shown(value):
    return repr(value) if len(repr(value)) < 100 else type(value).__name__
