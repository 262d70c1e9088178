"""Beam search: the best of several hypotheses at each position."""

from keras import ops

from multimodel.generation.writing import END, IMPOSSIBLE, allowed, write_ids


class BeamSearch:
    """Keeps the `beams` most probable unfinished hypotheses, and beside them the `beams` best finished ones.

    A hypothesis that has ended takes part in nothing but the comparison of finished ones. What is unfinished at the
    last position counts as finished there. An input is done when no unfinished hypothesis can become better than
    its worst finished one.

    Args:
        search: a Search.
        n_best: outputs for each input, at most `search.beams`.
        length: ids at most.
    """

    def __init__(self, search, n_best, length):
        self.search, self.n_best, self.length = search, n_best, length
        self.copies = search.beams

    def start(self, batch_size):
        rows = (batch_size, self.copies)
        ids, worst = ops.zeros((*rows, self.length), "int32"), ops.full(rows, IMPOSSIBLE, "float32")
        first = ops.where(ops.arange(self.copies) == 0, 0.0, worst)  # all are alike before the first position
        return {"ids": ids, "score": first, "done_ids": ids, "done_score": worst, "done_rank": worst}

    def unfinished(self, position, state):
        best = state["score"][:, 0] / self._penalty(self.length)  # if nothing more is lost until the last position
        return ops.any(best > state["done_rank"][:, -1])

    def choose(self, position, log_probabilities, state):
        """Log-probabilities `(b, beams, v)` -> the next ids `(b, beams)`, the beams that they continue, the state."""
        beams, num_classes = self.copies, log_probabilities.shape[-1]
        scores = state["score"][..., None] + allowed(log_probabilities, position, self.search.min_length)
        # Each beam can end once: of twice as many continuations, at least as many as there are beams do not.
        scores, places = ops.top_k(ops.reshape(scores, (-1, beams * num_classes)), min(2, num_classes) * beams)
        origins, next_ids = ops.cast(places // num_classes, "int32"), ops.cast(places % num_classes, "int32")
        ids = write_ids(take(state["ids"], origins), next_ids, position)  # (b, 2 beams, m)
        ends = next_ids == END
        done = self._with_done(state, ids, scores, ops.logical_or(ends, position == self.length - 1), position)
        score, best = ops.top_k(ops.where(ends, IMPOSSIBLE, scores), beams)
        state = done | {"ids": take(ids, best), "score": score}
        return take(next_ids, best), take(origins, best), state

    def _with_done(self, state, ids, scores, ends, position):
        """The best finished hypotheses, the ones that end now among them."""
        possible = ops.logical_and(ends, scores > IMPOSSIBLE / 2)
        rank = ops.where(possible, scores / self._penalty(position + 1), IMPOSSIBLE)
        rank = ops.concatenate([state["done_rank"], rank], axis=1)
        ids = ops.concatenate([state["done_ids"], ids], axis=1)
        score = ops.concatenate([state["done_score"], scores], axis=1)
        rank, best = ops.top_k(rank, self.copies)
        return {"done_ids": take(ids, best), "done_score": take(score, best), "done_rank": rank}

    def _penalty(self, length):
        return ((5.0 + ops.cast(length, "float32")) / 6.0) ** self.search.length_penalty

    def results(self, state):
        """Ids `(b, n_best, m)` and scores `(b, n_best)`, best first."""
        return state["done_ids"][:, : self.n_best], state["done_score"][:, : self.n_best]


def take(x, places):
    """`x (b, k, ...)` at `places (b, j)` -> `(b, j, ...)`."""
    return ops.take_along_axis(x, ops.reshape(places, (*ops.shape(places), *[1] * (len(x.shape) - 2))), axis=1)
