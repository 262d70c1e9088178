"""One id after the other: the most probable one, or one that is drawn."""

import keras
from keras import ops

from multimodel.generation.writing import END, allowed, write_ids


class Picking:
    """Greedy generation and sampling: each sequence goes on by itself.

    Args:
        search: a Search of one beam.
        copies: sequences for each input, which differ where ids are drawn.
        length: ids at most.
        num_classes: v.
    """

    def __init__(self, search, copies, length, num_classes):
        self.search, self.copies, self.length = search, copies, length
        self.noise = None
        if search.temperature:
            # The same for all inputs: what is drawn for one does not depend on where in a batch it stands.
            uniform = keras.random.uniform((length, copies, num_classes), 1e-7, 1.0, "float32", seed=search.seed)
            self.noise = -ops.log(-ops.log(uniform))

    def start(self, batch_size):
        rows = (batch_size, self.copies)
        ids = ops.zeros((*rows, self.length), "int32")
        return {"ids": ids, "score": ops.zeros(rows, "float32"), "ended": ops.zeros(rows, "bool")}

    def unfinished(self, position, state):
        return ops.logical_not(ops.all(state["ended"]))

    def choose(self, position, log_probabilities, state):
        """Log-probabilities `(b, copies, v)` -> the next ids `(b, copies)`, None as none changes places, the state."""
        scores = allowed(log_probabilities, position, self.search.min_length)
        if self.noise is not None:
            # The largest of logits with Gumbel noise is a draw from their softmax (arXiv 1611.01144, section 2).
            scores = self._limited(scores / self.search.temperature) + self.noise[position]
        ids = ops.cast(ops.argmax(scores, axis=-1), "int32")
        gained = ops.take_along_axis(log_probabilities, ids[..., None], axis=-1)[..., 0]
        ended = state["ended"]
        ids = ops.where(ended, 0, ids)
        state = {
            "ids": write_ids(state["ids"], ids, position),
            "score": state["score"] + ops.where(ended, 0.0, gained),
            "ended": ops.logical_or(ended, ids == END),
        }
        return ids, None, state

    def _limited(self, logits):
        """Leaves those among the top k, and among the top p of probability, the most probable one in any case."""
        if self.search.top_k:
            kth = ops.top_k(logits, min(self.search.top_k, logits.shape[-1]))[0][..., -1:]
            logits = ops.where(logits < kth, -1e9, logits)
        if self.search.top_p < 1:
            ordered = ops.top_k(logits, logits.shape[-1])[0]
            probabilities = ops.softmax(ordered, axis=-1)
            before = ops.cumsum(probabilities, axis=-1) - probabilities
            least = ops.min(ops.where(before < self.search.top_p, ordered, 1e9), axis=-1, keepdims=True)
            logits = ops.where(logits < least, -1e9, logits)
        return logits

    def results(self, state):
        """Ids `(b, copies, m)` and scores `(b, copies)`."""
        return state["ids"], state["score"]
