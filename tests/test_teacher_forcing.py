"""Scores of logits that are known beforehand."""

import keras
import numpy as np
import pytest
from keras import ops

from multimodel.tasks import ArraySource, Image, Label, Task, Text, Vocabulary
from multimodel.tasks.examples import EncodedPart
from multimodel.training.teacher_forcing import TeacherForcedScores

TEXT = Task("text", ArraySource({}), Text("a", Vocabulary(400), 3), Text("b", Vocabulary(400), 3))
LABEL = Task("label", ArraySource({}), Image("image", 2, 2), Label("name", tuple("abcdefg")))


class Fixed(keras.Model):
    """Gives row i of some logits for the input i."""

    def __init__(self, task, logits):
        super().__init__()
        self.task_name, self.logits = task, ops.convert_to_tensor(logits)
        self.built = True

    def call(self, features):
        return {self.task_name: ops.take(self.logits, features[self.task_name]["inputs"], axis=0)}


def scores(task, logits, targets, names):
    """Scores of these logits, in two parts."""
    forced, rows = TeacherForcedScores(Fixed(task.name, logits), task), np.arange(len(targets), dtype="int32")
    for part in (slice(None, 1), slice(1, None)):
        forced.add(EncodedPart(rows[part], rows[part], None, targets[part], None, None, [], []))
    return forced.scores(names)


def test_text():
    """Padding, id 0, does not count; the mean is over positions, not over rows."""
    logits = np.zeros((2, 3, 4), "float32")
    logits[0, 0, 2] = np.log(9.0)  # p = 9 / 12
    logits[0, 1, 3] = np.log(2.0)  # the target 1 has p = 1 / 5
    logits[1, 0, 1] = np.log(3.0)  # p = 3 / 6
    targets = np.array([[2, 1, 0], [1, 0, 0]], "int32")
    result = scores(TEXT, logits, targets, ["token_accuracy", "log_perplexity"])
    assert result["token_accuracy"] == pytest.approx(2 / 3, abs=1e-5)
    assert result["log_perplexity"] == pytest.approx(-np.log([9 / 12, 1 / 5, 3 / 6]).mean(), abs=1e-5)


def test_labels():
    """Class 0 counts as any other."""
    logits = np.tile(np.arange(7, 0, -1, dtype="float32"), (4, 1, 1))  # 0 is the most probable class, 6 the least
    targets = np.array([[0], [1], [4], [5]], "int32")
    result = scores(LABEL, logits, targets, ["top5", "token_accuracy"])
    assert result == {"top5": 0.75, "token_accuracy": 0.25}


def test_ties_and_nan_are_no_hits():
    """A model that says nothing, or breaks, is not right."""
    targets = np.array([[0], [3]], "int32")
    for value in (0.0, np.nan):
        logits = np.full((2, 1, 7), value, "float32")
        assert scores(LABEL, logits, targets, ["top5", "token_accuracy"]) == {"top5": 0.0, "token_accuracy": 0.0}
