"""Which experts a token goes to, and the losses that keep the experts busy (arXiv 1701.06538)."""

import contextlib
import contextvars
from typing import Any, NamedTuple

import keras
from keras import ops

_collector: contextvars.ContextVar[dict | None] = contextvars.ContextVar("routing_collector", default=None)


class RoutingSums(NamedTuple):
    """Sums over real tokens, each `(e,)`: of gates (importance) and of the chance of being chosen (load)."""

    importance: object
    load: object

    def __add__(self, other):
        return RoutingSums(self.importance + other.importance, self.load + other.load)


@contextlib.contextmanager
def collect_routing():
    """Gives a dict that maps each MoEBlock to its RoutingSums over all the calls made inside the `with`.

    A step passes through a block once for each group of tasks. Balance is asked of their sum: asked of each pass
    alone, it would force every task onto every expert.
    """
    sums: dict = {}
    token = _collector.set(sums)
    try:
        yield sums
    finally:
        _collector.reset(token)


def record_routing(block, sums):
    """Adds to the sums of an enclosing `collect_routing`; returns whether there is one."""
    collected = _collector.get()
    if collected is None:
        return False
    collected[block] = collected[block] + sums if block in collected else sums
    return True


def squared_variation(x):
    """CV^2, variance over squared mean, of a vector: 0 where all are equal."""
    return ops.var(x) / (ops.square(ops.mean(x)) + 1e-10)


@keras.saving.register_keras_serializable("multimodel")
class NoisyTopKRouter(keras.layers.Layer):
    """Noisy top-k gating (arXiv 1701.06538, section 2.1 and appendix A), in float32.

    `h = x W_gate + noise * softplus(x W_noise)`, noise in training only; the k largest of h are kept and their
    softmax are the gates. `load_i` sums the chance that expert i would be chosen again under fresh noise:
    `Phi((x W_gate - threshold_i) / softplus(x W_noise))`.

    Args:
        num_experts: experts to choose from.
        top_k: experts per token.

    Shapes: `x (s, d)`, `real (s,)` boolean or None -> gates `(s, k)`, experts `(s, k)`, RoutingSums.
    """

    def __init__(self, num_experts, top_k, **kwargs):
        super().__init__(**kwargs)
        self.num_experts, self.top_k = num_experts, top_k
        self.gate, self.noise = (
            keras.layers.Dense(num_experts, use_bias=False, kernel_initializer="zeros", dtype="float32", name=name)
            for name in ("gate", "noise")
        )
        self.seed = keras.random.SeedGenerator()

    def build(self, input_shape, *args):
        self.gate.build(input_shape)
        self.noise.build(input_shape)
        self.built = True

    def call(self, x, real=None, training=False):
        clean = logits = self.gate(x)
        scale: Any = None
        if training:
            scale = ops.softplus(self.noise(x)) + 1e-2
            logits = clean + scale * keras.random.normal(ops.shape(clean), seed=self.seed)
        kept = min(self.top_k + 1, self.num_experts)
        top, experts = ops.top_k(logits, kept)
        gates = ops.softmax(top[:, : self.top_k], axis=-1)
        experts = ops.cast(experts[:, : self.top_k], "int32")
        weights = gates if real is None else ops.where(real[:, None], gates, 0.0)
        importance = ops.segment_sum(ops.reshape(weights, (-1,)), ops.reshape(experts, (-1,)), self.num_experts)
        if not training or kept == self.top_k:
            chosen = ops.cast(weights > 0, "float32")
            load = ops.segment_sum(ops.reshape(chosen, (-1,)), ops.reshape(experts, (-1,)), self.num_experts)
        else:
            among, next_best = top[:, self.top_k - 1 : self.top_k], top[:, self.top_k :]
            threshold = ops.where(logits > next_best, next_best, among)  # (s, e), of the others' noisy logits
            chance = 0.5 * (1 + ops.erf((clean - threshold) / (scale * 2**0.5)))
            load = ops.sum(chance if real is None else ops.where(real[:, None], chance, 0.0), axis=0)
        return gates, experts, RoutingSums(importance, load)

    def get_config(self):
        return super().get_config() | {"num_experts": self.num_experts, "top_k": self.top_k}
