"""Where the decoder looks in the source while it writes an output."""

import keras
from keras import ops

from multimodel.backend import compile_for_backend
from multimodel.body.attention import AttentionBlock, collect_attention


class Alignment(keras.Model):
    """The last attention of the decoder over the source, heads averaged, for `predict_on_batch`.

    Args:
        model: a MultiModel.
        task: name of one of its tasks.

    Shapes: features `{"inputs" (b, ...), "inputs_mask" (b, ...), "targets" (b, m)}` -> `{"weights" (b, m, n) float32,
    "mask" (b, n)}`: each row of weights sums to 1 over the real source positions, and is 0 on the others.

    Raises:
        ValueError: if `aligns` says that the task has no such attention.
    """

    def __init__(self, model, task):
        super().__init__(name=f"align_{task}")
        if not aligns(model, task):
            raise ValueError(f"An alignment is of a decoder that attends. Received: task={task!r}. Ask aligns() first.")
        self.model, self.task = model, task
        self.built = True
        # A few rows of each task are run once: TensorFlow would trace for 2 s what it does in 0.3 s without.
        compile_for_backend(self, run_eagerly=keras.backend.backend() == "tensorflow")

    def call(self, features):
        with collect_attention() as weights:
            self.model({self.task: features})
        _, mask = self.model.input_net(self.task)(features["inputs"], mask=features.get("inputs_mask"))
        return {"weights": ops.mean(weights[_last_block(self.model).attention], axis=1), "mask": mask}


def aligns(model, task):
    """Whether a task is written by a decoder that looks at the source."""
    return model.output_net(task).reads == "decoded" and _last_block(model) is not None


def _last_block(model):
    return next((block for block in reversed(model.body.decoder) if isinstance(block, AttentionBlock)), None)
