"""Generation: outputs of one task, position by position, in one compiled loop over a batch."""

import keras
from keras import ops

from multimodel.backend import compile_for_backend
from multimodel.errors import UserError
from multimodel.generation.beam import BeamSearch
from multimodel.generation.picking import Picking


class Generator(keras.Model):
    """Writes the output of one task; `predict` and `predict_on_batch` run it compiled.

    Text: the encoder runs once, mixer and decoder step through their caches from the command vector on, and a Search
    chooses among the ids, until every row has ended (id 1) or has its most positions. Padding (id 0) is never chosen.
    Labels: the most probable classes.

    Args:
        model: a MultiModel.
        task: name of one of its tasks.
        search: a Search; the task's own if None.
        n_best: outputs for each input: the best ones of the beams, or so many draws, or the most probable classes.

    Shapes: features `{"inputs" (b, ...), "inputs_mask" (b, ...)}` -> `{"ids" (b, n_best, m) int32, "score" (b,
    n_best)}`, and `"probabilities" (b, v)` of labels. Ids after the end are 0; the score is the log-probability of the
    whole output under the model, in nats.

    Raises:
        UserError: if the search cannot give so many outputs.
    """

    def __init__(self, model, task, search=None, n_best=1):
        super().__init__(name=f"generate_{task}")
        self.model, self.task, self.n_best = model, task, n_best
        self.search = search or model.signatures[task].search
        self._check_n_best()
        self.built = True
        compile_for_backend(self)

    def _check_n_best(self):
        signature = self.model.signatures[self.task]
        most, what = self.search.beams, "beams"
        if signature.target_modality == "label":
            most, what = signature.num_classes, "classes"
        elif self.search.temperature:
            most = float("inf")
        if not 1 <= self.n_best <= most:
            hint = "" if what == "classes" else " Give more beams, or a temperature."
            raise UserError(
                f"n_best is from 1 to the number of {what}. Received: n_best={self.n_best}, {what}={most}.{hint}"
            )

    def call(self, features):
        encoded, mask = self.model.encode({self.task: features})[self.task]
        net = self.model.output_net(self.task)
        if net.reads == "encoded":
            return self._choose_labels(net(encoded, mask=mask))
        return self._write(net, encoded, mask)

    def _choose_labels(self, logits):
        log_probabilities = ops.log_softmax(ops.cast(logits[:, 0], "float32"), axis=-1)  # (b, v)
        score, ids = ops.top_k(log_probabilities, self.n_best)
        return {"ids": ops.cast(ids[..., None], "int32"), "score": score, "probabilities": ops.exp(log_probabilities)}

    def _write(self, net, encoded, mask):
        body, choice = self.model.body, self._choice()
        batch_size = ops.shape(encoded)[0]
        encoded, mask = (ops.repeat(x, choice.copies, axis=0) if choice.copies > 1 else x for x in (encoded, mask))

        def unfinished(position, x, cache, state):
            return ops.logical_and(position < choice.length, choice.unfinished(position, state))

        def write_next(position, x, cache, state):
            x, cache = body.step(x, cache)
            log_probabilities = ops.log_softmax(ops.cast(net(x)[:, 0], "float32"), axis=-1)
            log_probabilities = ops.reshape(log_probabilities, (-1, choice.copies, log_probabilities.shape[-1]))
            ids, origins, state = choice.choose(position, log_probabilities, state)
            if origins is not None:
                first_rows = choice.copies * ops.arange(ops.shape(origins)[0], dtype="int32")
                cache = body.reorder(cache, ops.reshape(first_rows[:, None] + origins, (-1,)))
            return position + 1, net.embed(ops.reshape(ids, (-1, 1))), cache, state

        start = (
            ops.zeros((), "int32"),
            self.model.command(self.task).first(batch_size * choice.copies),
            body.start(encoded, mask, choice.length),
            choice.start(batch_size),
        )
        *_, state = ops.while_loop(unfinished, write_next, start)
        ids, score = choice.results(state)
        unwritten = self.model.signatures[self.task].target_length - choice.length
        return {"ids": ops.pad(ids, [[0, 0], [0, 0], [0, unwritten]]), "score": score}

    def _choice(self):
        signature, search = self.model.signatures[self.task], self.search
        length = min(signature.target_length, search.max_length or signature.target_length)
        if search.beams > 1:
            return BeamSearch(search, self.n_best, length)
        return Picking(search, self.n_best, length, signature.num_classes)
