"""Attention of the body: MultiHeadAttention and AttentionBlock."""

import contextlib
import contextvars
from collections.abc import Iterator

import keras
from keras import ops

from multimodel.backend import matmul_of_few_rows, softmax_of_few_rows
from multimodel.body.block import XLA_BY_DEFAULT, Block, masked, section
from multimodel.body.conv import ConvStep
from multimodel.body.kv_cache import FixedCache, GrowingCache
from multimodel.body.timing import timing_signal

_weights: contextvars.ContextVar[dict | None] = contextvars.ContextVar("attention_weights", default=None)


@contextlib.contextmanager
def collect_attention() -> Iterator[dict]:
    """Gives `{MultiHeadAttention: weights (b, heads, m, n) float32}` of the last call of each inside the `with`."""
    weights: dict = {}
    token = _weights.set(weights)
    try:
        yield weights
    finally:
        _weights.reset(token)


@keras.saving.register_keras_serializable("multimodel")
class MultiHeadAttention(keras.layers.Layer):
    """Scaled dot-product attention of several heads (arXiv 1706.03762, section 3.2.2), split to suit caches.

    `head = softmax(q k^T / sqrt(dim / num_heads)) v`, heads concatenated and projected. No biases.

    Args:
        dim: channels in and out, divisible by `num_heads`.
        num_heads: heads.

    Raises:
        ValueError: if `num_heads` does not divide `dim`.
    """

    def __init__(self, dim, num_heads=8, **kwargs):
        super().__init__(**kwargs)
        if dim % num_heads:
            raise ValueError(
                f"Heads share the channels evenly. Received: dim={dim}, num_heads={num_heads}. "
                f"Choose a dim divisible by num_heads."
            )
        self.dim, self.num_heads = dim, num_heads
        self.query, self.key, self.value, self.output_projection = (
            keras.layers.Dense(dim, use_bias=False, dtype=self.dtype_policy, name=name)
            for name in ("query", "key", "value", "output")
        )

    def build(self, *shapes, **kwargs):
        for projection in (self.query, self.key, self.value, self.output_projection):
            projection.build((None, None, self.dim))
        self.built = True

    def call(self, target, source, seen=None):
        """`target (b, m, dim)` looks at `source (b, n, dim)`; `seen` broadcasts to `(b, 1, m, n)`, True = looks at."""
        return self.attend(target, [(self.keys(source), self.values(source))], seen)

    def keys(self, source):
        """`(b, n, dim)` -> `(b, heads, dim / heads, n)`, as they are multiplied with."""
        return ops.transpose(self._split(self.key(source)), (0, 2, 3, 1))

    def values(self, source):
        """`(b, n, dim)` -> `(b, heads, n, dim / heads)`."""
        return ops.transpose(self._split(self.value(source)), (0, 2, 1, 3))

    def attend(self, target, parts, seen=None):
        """`target (b, m, dim)` over the prepared `(keys, values)` of a source, in parts behind one another ->
        `(b, m, dim)`."""
        matmul, softmax = ops.matmul, ops.softmax
        if target.shape[1] == 1:
            matmul, softmax = matmul_of_few_rows, softmax_of_few_rows
        query = self._split(self.query(target) * (self.dim // self.num_heads) ** -0.5)
        query = ops.transpose(query, (0, 2, 1, 3))
        scores = [ops.cast(matmul(query, keys), "float32") for keys, _ in parts]
        scores = scores[0] if len(parts) == 1 else ops.concatenate(scores, axis=-1)  # (b, heads, m, n)
        if seen is not None:
            scores = ops.where(seen, scores, -1e9)
        weights = softmax(scores)
        collected = _weights.get()
        if collected is not None:
            collected[self] = weights
        weights = ops.cast(weights, parts[0][1].dtype)
        heads, start = 0, 0
        for _, values in parts:
            length = ops.shape(values)[2]
            of_part = weights if len(parts) == 1 else section(weights, start, length, axis=3)
            heads, start = heads + matmul(of_part, values), start + length
        heads = ops.transpose(heads, (0, 2, 1, 3))
        return self.output_projection(ops.reshape(heads, (-1, ops.shape(target)[1], self.dim)))

    def _split(self, x):
        """`(b, n, dim)` -> `(b, n, heads, dim / heads)`."""
        return ops.reshape(x, (-1, ops.shape(x)[1], self.num_heads, self.dim // self.num_heads))

    def get_config(self):
        return super().get_config() | {"dim": self.dim, "num_heads": self.num_heads}


@keras.saving.register_keras_serializable("multimodel")
class AttentionBlock(Block):
    """The target, placed in time and convolved, looks at itself and then at the source.

    `q = self_attention(step2(step1(target + timing)))`, `out = target + attention(q, keys(source), values(source))`
    (arXiv 1706.05137, section 2.2; the residual is that of its first public code). Causal in the target. Where the
    whole source is masked, nothing is added.

    Args:
        dim: channels of target and source.
        num_heads: heads of both attentions.
        remat: whether training computes the block's inside again for the gradient instead of keeping it.

    Attributes:
        supports_jit: whether XLA compiles it, which wants caches of a known size: see `XLA_BY_DEFAULT`.

    Shapes: `x (b, m, dim)`, `context (b, n, dim)`, `mask (b, m)`, `context_mask (b, n)` -> `(b, m, dim)`.

    Raises:
        ValueError: if there is no `context`.
    """

    def __init__(self, dim, num_heads=8, remat=False, **kwargs):
        super().__init__(**kwargs)
        self.dim, self.num_heads, self.remat = dim, num_heads, remat
        self.supports_jit = XLA_BY_DEFAULT
        self.steps = [ConvStep(dim, 3, causal=True, dtype=self.dtype_policy, name=f"step{i}") for i in (1, 2)]
        self.self_attention = MultiHeadAttention(dim, num_heads, dtype=self.dtype_policy, name="self_attention")
        self.attention = MultiHeadAttention(dim, num_heads, dtype=self.dtype_policy, name="attention")

    def build(self, *shapes, **kwargs):
        for step in self.steps:
            step.build((None, None, self.dim))
        self.self_attention.build()
        self.attention.build()
        self.built = True

    def call(self, x, mask=None, context=None, context_mask=None, training=False):
        if context is None:
            raise ValueError(
                "An AttentionBlock looks at a source. Received: context=None. Pass context=(b, n, dim) vectors."
            )

        def look(x, context):
            query = x + timing_signal(length if isinstance(length, int) else ops.arange(length), self.dim, x.dtype)
            for step in self.steps:
                query = step(query, mask=mask)
            query = self.self_attention(query, query, seen)
            return x + self.attention.attend(query, [self._memory(context, context_mask)], _columns(context_mask))

        length = ops.shape(x)[1]
        places = ops.arange(length)
        seen = places[:, None] >= places  # (m, m)
        seen = seen if mask is None else seen & mask[:, None, None, :]  # (b, 1, m, m)
        return (keras.remat(look) if self.remat and training else look)(x, context)

    def _memory(self, context, context_mask):
        """Keys and values; values are zero under the mask, so that an all-padding source adds nothing."""
        return self.attention.keys(context), self.attention.values(masked(context, context_mask))

    def start(self, batch_size, max_length, context=None, context_mask=None):
        if context_mask is None:
            context_mask = ops.ones(ops.shape(context)[:2], "bool")
        return {
            "position": ops.zeros((), "int32"),
            "steps": [step.start(batch_size) for step in self.steps],
            "self": self._kv_cache().start(batch_size, max_length),
            "context": self._memory(context, context_mask),
            "context_mask": context_mask,
        }

    def _kv_cache(self):
        kind = FixedCache if self.supports_jit else GrowingCache
        return kind(self.num_heads, self.dim // self.num_heads, self.compute_dtype)

    def step(self, x, cache):
        position = cache["position"]
        query = x + timing_signal(position[None], self.dim, x.dtype)
        steps = []
        for step, window in zip(self.steps, cache["steps"], strict=True):
            query, window = step.step(query, window)
            steps.append(window)
        new = self.self_attention.keys(query), self.self_attention.values(query)
        looked_at, parts, seen = self._kv_cache().append(cache["self"], new, position)
        query = self.self_attention.attend(query, parts, seen)
        x = x + self.attention.attend(query, [cache["context"]], _columns(cache["context_mask"]))
        return x, cache | {"position": position + 1, "steps": steps, "self": looked_at}

    def reorder(self, cache, rows):
        """Rows that change places belong to one source, whose part stays as it is."""
        return cache | super().reorder({name: cache[name] for name in ("steps", "self")}, rows)

    def get_config(self):
        return super().get_config() | {"dim": self.dim, "num_heads": self.num_heads, "remat": self.remat}


def _columns(mask):
    """`(b, n)` -> `(b, 1, 1, n)`: the same source positions for every head and target position."""
    return None if mask is None else mask[:, None, None, :]
