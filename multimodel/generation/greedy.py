"""Greedy generation: the most probable output, position by position, in one compiled loop over a batch."""

import keras
from keras import ops

from multimodel.backend import compile_for_backend

END = 1


class GreedyGenerator(keras.Model):
    """Writes the output of one task; `predict` and `predict_on_batch` run it compiled.

    Text: from the command vector on, each position is the most probable id after those before it, until every row
    has written the end (id 1) or `target_length` is reached. The encoder runs once, mixer and decoder step through
    their caches. Labels: the most probable class.

    Args:
        model: a MultiModel.
        task: name of one of its tasks.

    Shapes: features `{"inputs" (b, ...), "inputs_mask" (b, ...)}` -> `{"ids" (b, m) int32, "score" (b,)}`; ids after
    the end are 0, the score is the log-probability of the whole output, in nats.
    """

    def __init__(self, model, task):
        super().__init__(name=f"generate_{task}")
        self.model, self.task = model, task
        self.built = True
        compile_for_backend(self)

    def call(self, features):
        encoded, mask = self.model.encode({self.task: features})[self.task]
        net = self.model.output_net(self.task)
        if net.reads == "encoded":
            return self._choose_label(net(encoded, mask=mask))
        return self._write(net, encoded, mask)

    def _choose_label(self, logits):
        log_probabilities = ops.log_softmax(ops.cast(logits, "float32"), axis=-1)  # (b, 1, v)
        ids = ops.cast(ops.argmax(log_probabilities, axis=-1), "int32")
        return {"ids": ids, "score": ops.max(log_probabilities, axis=(1, 2))}

    def _write(self, net, encoded, mask):
        length = self.model.signatures[self.task].target_length
        batch_size = ops.shape(encoded)[0]

        def unfinished(position, ended, *rest):
            return ops.logical_and(position < length, ops.logical_not(ops.all(ended)))

        def write_next(position, ended, x, cache, ids, score):
            x, cache = self.model.body.step(x, cache)
            log_probabilities = ops.log_softmax(ops.cast(net(x)[:, 0], "float32"), axis=-1)  # (b, v)
            best = ops.cast(ops.argmax(log_probabilities, axis=-1), "int32")
            score = score + ops.where(ended, 0.0, ops.max(log_probabilities, axis=-1))
            best = ops.where(ended, 0, best)
            ids = ops.where(ops.arange(length) == position, best[:, None], ids)
            return position + 1, ops.logical_or(ended, best == END), net.embed(best[:, None]), cache, ids, score

        state = (
            ops.zeros((), "int32"),
            ops.zeros((batch_size,), "bool"),
            self.model.command(self.task).first(batch_size),
            self.model.body.start(encoded, mask, length),
            ops.zeros((batch_size, length), "int32"),
            ops.zeros((batch_size,), "float32"),
        )
        *_, ids, score = ops.while_loop(unfinished, write_next, state)
        return {"ids": ids, "score": score}
