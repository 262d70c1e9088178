"""The timing signal: where in the sequence a vector stands."""

import math

import numpy as np
from keras import ops


def timing_signal(positions, dim, dtype="float32"):
    """Sines and cosines of geometrically spaced periods, interleaved over all channels.

    `signal[t, 2j] = sin(t / 10000^(2j / dim))` and `signal[t, 2j + 1] = cos(t / 10000^(2j / dim))`
    (arXiv 1706.05137, section 2.2).

    Args:
        positions: number of positions, or an integer tensor `(n,)` of positions.
        dim: channels, even.
        dtype: of the result; it is computed in float32.

    Returns:
        `(n, dim)`.

    Raises:
        ValueError: if `dim` is odd.
    """
    if dim % 2:
        raise ValueError(f"A timing signal pairs sines with cosines. Received: dim={dim}. Choose an even dim.")
    rates = np.exp(-math.log(1e4) * np.arange(0, dim, 2) / dim).astype("float32")
    if isinstance(positions, int):
        angles = np.arange(positions, dtype="float32")[:, None] * rates
        return ops.cast(np.stack([np.sin(angles), np.cos(angles)], -1).reshape(positions, dim), dtype)
    angles = ops.cast(positions, "float32")[:, None] * rates
    signal = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)  # (n, dim / 2, 2)
    return ops.cast(ops.reshape(signal, (-1, dim)), dtype)
