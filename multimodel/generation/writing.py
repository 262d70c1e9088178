"""What all ways to choose ids have in common."""

from keras import ops

PADDING, END = 0, 1
IMPOSSIBLE = -1e9  # a log-probability below all others


def allowed(log_probabilities, position, min_length):
    """Log-probabilities `(b, k, v)` in which padding never comes, and no end before `min_length` ids."""
    classes = ops.arange(log_probabilities.shape[-1])
    early = ops.logical_and(classes == END, position < min_length)
    return ops.where(ops.logical_or(classes == PADDING, early), IMPOSSIBLE, log_probabilities)


def write_ids(ids, next_ids, position):
    """`ids (b, k, m)` with `next_ids (b, k)` at a position."""
    return ops.where(ops.arange(ids.shape[-1]) == position, next_ids[..., None], ids)
