"""The keys and values of a decoder's positions so far, at which its self-attention looks (KV cache).

The latest ones stand for themselves, so that a new position is written into a small tensor; when there are LATEST of
them they join the earlier ones, which are copied then and at no other position. Both ways to keep them have
`start(batch_size, max_length)`, the cache before the first position, and `append(cache, new, position)`, which gives
the cache with the keys and values of a position, the parts `[(keys, values)]` to look at, and which of their positions
are seen `(n,)`, None for all. Shapes: keys `(b, heads, width, n)`, values `(b, heads, n, width)`.
"""

from keras import ops

from multimodel.backend import forget_length

LATEST = 16
TIME_AXES = (3, 2)  # of keys and of values


class GrowingCache:
    """Has the positions that there are and no room for others. For TensorFlow: in XLA, nothing grows.

    Args:
        num_heads: heads.
        width: channels of each.
        dtype: of keys and values.
    """

    def __init__(self, num_heads, width, dtype):
        self.num_heads, self.width, self.dtype = num_heads, width, dtype

    def start(self, batch_size, max_length):
        return {name: tuple(map(forget_length, self._room(batch_size, 0), TIME_AXES)) for name in ("latest", "earlier")}

    def _room(self, batch_size, length):
        shapes = (self.width, length), (length, self.width)
        return tuple(ops.zeros((batch_size, self.num_heads, *shape), self.dtype) for shape in shapes)

    def append(self, cache, new, position):
        earlier, latest = cache["earlier"], _join(cache["latest"], new)
        changed = ops.cond(
            position % LATEST == LATEST - 1,
            lambda: {"latest": (latest[0][..., :0], latest[1][:, :, :0]), "earlier": _join(earlier, latest)},
            lambda: {"latest": latest, "earlier": earlier},
        )
        return changed, [earlier, latest], None


class FixedCache(GrowingCache):
    """Has room for all positions from the start, zeros where there is none yet."""

    def start(self, batch_size, max_length):
        before = LATEST * ((max_length - 1) // LATEST)
        return {"latest": self._room(batch_size, min(LATEST, max_length)), "earlier": self._room(batch_size, before)}

    def append(self, cache, new, position):
        place = position % LATEST
        earlier, latest = cache["earlier"], _write(new, cache["latest"], place)
        seen = ops.arange(latest[1].shape[2]) <= place
        if earlier[1].shape[2] == 0:
            return {"latest": latest, "earlier": earlier}, [latest], seen
        seen = ops.concatenate([ops.arange(earlier[1].shape[2]) < position - place, seen])
        written = ops.cond(place == LATEST - 1, lambda: _write(latest, earlier, position - place), lambda: earlier)
        return {"latest": latest, "earlier": written}, [earlier, latest], seen


def _join(*pairs):
    """Keys and values behind one another."""
    return tuple(ops.concatenate(parts, axis) for parts, axis in zip(zip(*pairs, strict=True), TIME_AXES, strict=True))


def _write(new, room, place):
    """Keys and values `new`, written into those of `room` from a place on."""
    starts = (0, 0, 0, place), (0, 0, place, 0)
    return tuple(ops.slice_update(into, start, part) for part, into, start in zip(new, room, starts, strict=True))
