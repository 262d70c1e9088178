"""Which experts a token goes to, and what is counted to keep the experts busy (arXiv 1701.06538)."""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any, NamedTuple

import keras
from keras import ops


class RoutingSums(NamedTuple):
    """Sums over real tokens, each `(e,)` where nothing else is said.

    Attributes:
        importance: of gates.
        load: of the chance of being chosen, which has a gradient.
        choices: how many tokens chose each expert.
        probability: of the softmax over all experts, without noise.
        squared_log_sum: of `logsumexp(logits)^2`, a scalar.
        tokens: how many there are, a scalar.
    """

    importance: Any
    load: Any
    choices: Any
    probability: Any
    squared_log_sum: Any
    tokens: Any

    def __add__(self, other):
        return RoutingSums(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class RoutingRecord:
    """What the MoEBlocks called inside one `collect_routing` did.

    Attributes:
        sums: `{block: RoutingSums}` over all calls.
        choices: `{block: {name: (e,)}}`, how many tokens of each name chose each expert.
    """

    def __init__(self):
        self.sums: dict = {}
        self.choices: dict = {}
        self._tokens: dict = {}

    @contextlib.contextmanager
    def tokens(self, tokens) -> Iterator[None]:
        """Says whose tokens the calls inside the `with` see: `{name: number of tokens}`, in their order."""
        self._tokens = tokens
        try:
            yield
        finally:
            self._tokens = {}

    def add(self, block, sums, experts):
        """Adds one call: its sums, and its choices `(s, k)`, `num_experts` for those of padding."""
        self.sums[block] = self.sums[block] + sums if block in self.sums else sums
        if sum(self._tokens.values()) != experts.shape[0]:  # nobody said, or a call of another block's within
            return
        width, top_k = block.num_experts + 1, experts.shape[1]
        owners = [ops.full((tokens * top_k,), i * width, "int32") for i, tokens in enumerate(self._tokens.values())]
        cells = ops.concatenate(owners) + ops.reshape(experts, (-1,))
        counts = ops.segment_sum(ops.ones_like(cells, "float32"), cells, width * len(self._tokens))
        counts = ops.reshape(counts, (-1, width))[:, :-1]
        totals = self.choices.setdefault(block, {})
        for i, name in enumerate(self._tokens):
            totals[name] = totals[name] + counts[i] if name in totals else counts[i]


_record: contextvars.ContextVar[RoutingRecord | None] = contextvars.ContextVar("routing_record", default=None)


@contextlib.contextmanager
def collect_routing() -> Iterator[RoutingRecord]:
    """Gives a RoutingRecord of all the calls made inside the `with`, however often they pass through a block."""
    record = RoutingRecord()
    token = _record.set(record)
    try:
        yield record
    finally:
        _record.reset(token)


def current_record():
    """The RoutingRecord of the innermost `collect_routing`, or None."""
    return _record.get()


def squared_variation(x):
    """CV^2, variance over squared mean, of a vector: 0 where all are equal."""
    return ops.var(x) / (ops.square(ops.mean(x)) + 1e-10)


def switch_loss(sums):
    """`e sum_i f_i P_i` (arXiv 2101.03961, equation 4): f_i the share of the choices that fell on expert i, P_i its
    mean probability. 1 where both are uniform; the gradient comes by P."""
    shares = sums.choices / ops.maximum(ops.sum(sums.choices), 1)
    probabilities = sums.probability / ops.maximum(sums.tokens, 1)
    return shares.shape[0] * ops.sum(shares * probabilities)


def z_loss(sums):
    """Mean of `logsumexp(logits)^2` over tokens (arXiv 2202.08906, equation 5): keeps the router's logits small."""
    return sums.squared_log_sum / ops.maximum(sums.tokens, 1)


@keras.saving.register_keras_serializable("multimodel")
class NoisyTopKRouter(keras.layers.Layer):
    """Noisy top-k gating (arXiv 1701.06538, section 2.1 and appendix A), in float32.

    `h = x W_gate + noise * (softplus(x W_noise) + 0.01)`, noise in training only; the k largest of h are kept and
    their softmax are the gates. `load_i` sums the chance that expert i would be chosen again under fresh noise:
    `Phi((x W_gate - threshold_i) / (softplus(x W_noise) + 0.01))`. Both matrices begin at zero.

    Args:
        num_experts: experts to choose from.
        top_k: experts per token.

    Shapes: `x (s, d)`, `real (s,)` boolean or None -> gates `(s, k)`, experts `(s, k)`, RoutingSums. A token that is
    not real has gates 0 and the expert `num_experts`, which there is not.
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
        scale: Any = None
        if training:  # both products in one
            kernels = ops.concatenate([self.gate.kernel, self.noise.kernel], axis=1)
            clean, noise = ops.split(ops.matmul(ops.cast(x, "float32"), kernels), 2, axis=-1)
            scale = ops.softplus(noise) + 1e-2
            noisy = clean + scale * keras.random.normal(ops.shape(clean), seed=self.seed)
        else:
            clean = noisy = self.gate(x)
        real = ops.ones(ops.shape(x)[:1], "bool") if real is None else real
        top, experts = ops.top_k(noisy, min(self.top_k + 1, self.num_experts))
        gates = ops.where(real[:, None], ops.softmax(top[:, : self.top_k], axis=-1), 0.0)
        experts = ops.where(real[:, None], ops.cast(experts[:, : self.top_k], "int32"), self.num_experts)
        importance, choices = self._total(gates, experts), self._total(ops.ones_like(gates), experts)
        load = choices
        if training and self.top_k < self.num_experts:
            load = _sum_real(self._chance(clean, noisy, scale, top), real)
        log_sum = ops.logsumexp(clean, axis=-1, keepdims=True)
        sums = RoutingSums(
            importance,
            load,
            choices,
            _sum_real(ops.exp(clean - log_sum), real),
            _sum_real(ops.square(log_sum), real)[0],
            ops.sum(ops.cast(real, "float32")),
        )
        return gates, experts, sums

    def _total(self, values, experts):
        """Sums `values (s, k)` by expert `(e,)`."""
        flat = ops.reshape(values, (-1,)), ops.reshape(experts, (-1,))
        return ops.segment_sum(*flat, self.num_experts + 1)[: self.num_experts]

    def _chance(self, clean, noisy, scale, top):
        """`(s, e)`: the chance that fresh noise on one expert's logit lifts it among the k largest again."""
        among, next_best = top[:, self.top_k - 1 : self.top_k], top[:, self.top_k :]
        threshold = ops.where(noisy > next_best, next_best, among)  # of the others' noisy logits
        return 0.5 * (1 + ops.erf((clean - threshold) / (scale * 2**0.5)))

    def get_config(self):
        return super().get_config() | {"num_experts": self.num_experts, "top_k": self.top_k}


def _sum_real(x, real):
    """Sums `x (s, e)` over real tokens."""
    return ops.sum(ops.where(real[:, None], x, 0.0), axis=0)
