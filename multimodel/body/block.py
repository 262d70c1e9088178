"""What every block of a body has in common."""

import keras
from keras import ops

# Whether layers that are written in two ways take the one for XLA. They say so by Keras' `supports_jit`: Keras then
# compiles no model of theirs with XLA on TensorFlow, unless `multimodel.backend.compile_for_backend` asks for it.
XLA_BY_DEFAULT = keras.backend.backend() != "tensorflow"


def masked(x, mask):
    """Sets the vectors of `x (b, n, d)` to zero where `mask (b, n)` is False; no mask leaves them as they are."""
    return x if mask is None else ops.where(mask[..., None], x, ops.zeros((), x.dtype))


def section(x, start, size, axis=0):
    """`x[start : start + size]` along an axis. TensorFlow's gradient of that notation, StridedSliceGrad, takes several
    times as long as the one of this."""
    starts, sizes = [0] * len(x.shape), list(ops.shape(x))
    starts[axis], sizes[axis] = start, size
    return ops.slice(x, starts, sizes)


class Block(keras.layers.Layer):
    """A layer of the body: a sequence of vectors in, a sequence of the same shape out.

    Contract:
        `call(x, mask, context, context_mask, training)`, with `x (b, n, d)`, `mask (b, n)` boolean and True where
        real, and the encoder's output `context (b, n', d)` with its mask for blocks that look at it. What stands
        where the mask is False never changes what comes out where it is True.

        A causal block also decodes position by position: `start(batch_size, max_length, context, context_mask)`
        gives the cache before the first position, `step(x, cache)` takes `x (b, 1, d)` and the cache to their
        successors. Both ways give the same numbers at inference. `reorder(cache, rows)` gives the cache whose row i was
        row `rows[i]`, for beams; rows change places only within one source.

    Attributes:
        pointwise: whether each position is treated by itself. A body then calls the block once for all its groups of
            sequences, whatever their lengths.
    """

    pointwise = False

    def reorder(self, cache, rows):
        """The cache with its rows `(b,)` in another order."""
        return keras.tree.map_structure(lambda x: ops.take(x, rows, axis=0), cache)

    def compute_mask(self, *arguments):
        """None: masks are arguments. Keras would hang its own on the outputs, and weigh losses by them."""


def call_pointwise(block, xs, masks, **arguments):
    """Calls a pointwise block once for several groups: lists of `x (b, n, d)` and `mask (b, n)` -> list of the same."""
    width = xs[0].shape[-1]
    joined = ops.concatenate([ops.reshape(x, (1, -1, width)) for x in xs], axis=1)
    mask = ops.concatenate([ops.reshape(mask, (1, -1)) for mask in masks], axis=1)
    joined = block(joined, mask=mask, **arguments)
    parts, start = [], 0
    for x in xs:
        positions = ops.shape(x)[0] * ops.shape(x)[1]
        parts.append(ops.reshape(section(joined, start, positions, axis=1), ops.shape(x)))
        start = start + positions
    return parts
