"""What TensorBoard shows of a run."""

import re
from typing import Any

import numpy as np
import tensorflow as tf

from multimodel.training.expert_map import expert_map
from multimodel.training.listener import Listener

BY_TASK = ("loss", "accuracy", "epochs")
OF_THE_STEP = ("learning_rate", "steps_per_second", "memory_mb")


class TensorBoardLog(Listener):
    """Writes each record of `history.jsonl` as scalars, and the load of the experts as heat maps.

    A folder that cannot be written ends neither training nor the record elsewhere: it is told once, and no more is
    written.

    Args:
        folder: of the event files; a training that goes on adds another file.
        tell: takes a line for the user.
    """

    def __init__(self, folder, tell):
        self._folder, self._tell = folder, tell
        self._writer: Any = None
        self._works = True

    def interval(self, record):
        self._unless_broken(self._write, record)

    def validation(self, record):
        self._unless_broken(self._write_scalars, record["step"], validation_scalars(record))

    def close(self):
        if self._writer is not None:
            self._unless_broken(self._writer.close)

    def _unless_broken(self, act, *arguments):
        if not self._works:
            return
        try:
            with tf.device("CPU"):
                act(*arguments)
        except (tf.errors.OpError, OSError) as error:
            self._works = False
            self._tell(f"TensorBoard's files cannot be written, and training goes on without: {_reason(error)}")

    def _write(self, record):
        self._write_scalars(record["step"], scalars(record))
        with self._writer.as_default(record["step"]):
            for block, shares in record["expert_load"].items():
                if shares:
                    tf.summary.image(f"expert_load/{block}", expert_map(shares)[np.newaxis])
        self._writer.flush()

    def _write_scalars(self, step, values):
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(str(self._folder))
        with self._writer.as_default(step):
            for name, value in values.items():
                tf.summary.scalar(name, value)
        self._writer.flush()


def scalars(record):
    """`{tag: number}` of a record of `history.jsonl`; `loss/TASK`, and `training/...` for what belongs to no task."""
    found = {f"training/{name}": record[name] for name in OF_THE_STEP}
    for name in BY_TASK:
        found |= {f"{name}/{task}": value for task, value in record[name].items()}
    for task, shares in record["padding"].items():
        found |= {f"padding_of_{role}/{task}": share for role, share in shares.items()}
    return found


def validation_scalars(record):
    """`{"validation/TASK/METRIC": value}`, and what the best weights are told by."""
    scores = {f"{task}/{name}": value for task, of in record["validation"].items() for name, value in of.items()}
    return {f"validation/{name}": value for name, value in (scores | {"monitored": record["monitored"]}).items()}


def _reason(error):
    """An error in one line, without TensorFlow's name of the operation."""
    return " ".join(re.sub(r"\{\{.*?\}\}", "", str(error)).split())[:200]
