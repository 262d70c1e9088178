"""The sparsely gated mixture of experts: Experts and MoEBlock."""

import math

import keras
from keras import ops

from multimodel.backend import matmul_of_few_rows
from multimodel.body import routing
from multimodel.body.block import XLA_BY_DEFAULT, Block
from multimodel.body.norm import LayerNorm
from multimodel.body.routing import NoisyTopKRouter, current_record, squared_variation


@keras.saving.register_keras_serializable("multimodel")
class Experts(keras.layers.Layer):
    """Feed-forward experts, `relu(x W1_i) W2_i`, each applied to the tokens that chose it.

    Each expert has a tile, so many rows for its tokens, and all tiles are multiplied in one batched product with the
    weights where they lie. Without a capacity, tokens for which an expert's tile has no room go to spare tiles, which
    are multiplied with copies of their experts' weights: no token is dropped, and no row depends on its neighbours.
    With one, a tile has that many rows; each expert keeps the tokens with the largest gates and drops the rest.

    Args:
        num_experts: experts.
        dim: channels in and out.
        hidden_dim: channels between.
        tile: rows of a tile where there is no capacity; suited to the number of tokens if None.

    Attributes:
        supports_jit: whether XLA compiles it, which wants shapes that are known beforehand: there are then as many
            spare tiles as can ever be needed, and otherwise as many as are. See `XLA_BY_DEFAULT`.

    Shapes: `x (s, d)`, `gates (s, k)`, `experts (s, k)` where `num_experts` stands for none, `capacity` a number of
    tokens or None -> `(s, d)`.
    """

    def __init__(self, num_experts, dim, hidden_dim, tile=None, **kwargs):
        super().__init__(**kwargs)
        self.num_experts, self.dim, self.hidden_dim, self.tile = num_experts, dim, hidden_dim, tile
        self.supports_jit = XLA_BY_DEFAULT

    def build(self, *shapes):
        def kernel(rows, columns, name):
            scale = keras.initializers.RandomNormal(stddev=rows**-0.5)
            return self.add_weight(shape=(self.num_experts, rows, columns), initializer=scale, name=name)

        self.expand = kernel(self.dim, self.hidden_dim, "expand")
        self.reduce = kernel(self.hidden_dim, self.dim, "reduce")
        self.built = True

    def call(self, x, gates, experts, capacity=None):
        choices, top_k = ops.shape(x)[0] * experts.shape[1], experts.shape[1]
        experts = ops.reshape(experts, (-1,))
        counts = ops.segment_sum(ops.ones_like(experts), experts, self.num_experts + 1)[: self.num_experts]
        if capacity is None:
            tile, order = self.tile or self._suited_tile(choices, counts), ops.argsort(experts, axis=-1)
        else:
            tile, order = capacity, ops.argsort(ops.cast(experts, "float32") - _below_one(gates), axis=-1)
        spare_tiles = ops.maximum((counts - 1) // tile, 0)  # that each expert needs beside its own
        if capacity is not None:
            spare = 0
        elif self.supports_jit:
            spare = choices // tile  # an expert that needs more tiles than one fills all of them but the last
        else:
            spare = ops.sum(spare_tiles)
        places = self._places(experts, order, counts, tile, spare_tiles, spare)
        rows = self.num_experts * tile, spare * tile
        choice_of_row = _choices_of(places, sum(rows), choices)
        own, extra = dispatch(x, choice_of_row, places, rows, top_k)
        own, extra = (ops.reshape(part, (-1, tile, self.dim)) for part in (own, extra))
        own, extra = self._multiply(own, extra, spare_tiles, spare)
        own, extra = (ops.reshape(part, (-1, self.dim)) for part in (own, extra))
        return combine(own, extra, ops.cast(gates, x.dtype), choice_of_row, ops.reshape(places, (-1, top_k)))

    def _suited_tile(self, choices, counts):
        """Rows of a tile, a multiple of 8, that make the whole cheapest.

        As many as the busiest expert needs, or, where it needs half as many again as its share, a fifth more than the
        share. Where shapes are known beforehand there are always as many spare tiles as possible, and smaller tiles
        are the better ones: on a CPU, copying the weights of an expert takes about as long as multiplying 40 rows.
        """
        if self.supports_jit:
            return 8 * max(1, round((40 * choices / self.num_experts) ** 0.5 / 8)) if isinstance(choices, int) else 64
        busiest, share = ops.max(counts), choices // self.num_experts
        rows = ops.maximum(ops.where(2 * busiest <= 3 * share, busiest, share + share // 5), 1)
        unit = 8 * ops.maximum(share // 64, 1)  # few different sizes: oneDNN prepares itself for each new one
        return unit * ((rows - 1) // unit + 1)

    def _places(self, experts, order, counts, tile, spare_tiles, spare):
        """The row of each choice `(s k,)` in the tiles; the row after the last one for a choice that has none."""
        sorted_experts = ops.take(experts, order)
        known = ops.minimum(sorted_experts, self.num_experts - 1)
        rank = ops.arange(ops.shape(experts)[0], dtype="int32") - ops.take(ops.cumsum(counts) - counts, known)
        before = ops.take(ops.cumsum(spare_tiles) - spare_tiles, known)  # spare tiles of the experts before
        nowhere = (self.num_experts + spare) * tile
        beyond = nowhere if _is_zero(spare) else (self.num_experts + before + rank // tile - 1) * tile + rank % tile
        places = ops.where(rank < tile, known * tile + rank, beyond)
        places = ops.where(sorted_experts < self.num_experts, places, nowhere)
        return ops.scatter_update(ops.zeros_like(places), order[:, None], places)

    def _multiply(self, own, extra, spare_tiles, spare):
        """The experts over their tiles `(e, t, d)` and the spare ones `(spare, t, d)`."""
        if _is_zero(spare):
            return ops.matmul(ops.relu(ops.matmul(own, self.expand)), self.reduce), extra
        owners = ops.searchsorted(ops.cumsum(spare_tiles), ops.arange(spare, dtype="int32"), side="right")
        owners = ops.minimum(owners, self.num_experts - 1)
        for kernel, activation in ((self.expand, ops.relu), (self.reduce, lambda x: x)):
            kernel, copies = with_copies(ops.cast(kernel, self.compute_dtype), owners)
            own, extra = activation(ops.matmul(own, kernel)), activation(ops.matmul(extra, copies))
        return own, extra

    def get_config(self):
        sizes = {"num_experts": self.num_experts, "dim": self.dim, "hidden_dim": self.hidden_dim, "tile": self.tile}
        return super().get_config() | sizes


def dispatch(x, choice_of_row, places, rows, top_k):
    """Tokens `x (s, d)` to the rows of their experts' own tiles and of the spare ones, zeros where a row is empty.

    Its gradient is a gather as well: each token knows its rows, as each row knows its token. The one of `ops.take`
    would be a sum by index, ten times as slow.
    """
    tokens = choice_of_row // top_k

    @ops.custom_gradient
    def gather(x):
        def gradient(*upstream):
            chosen = _take([*keras.tree.flatten(upstream)], places)
            return ops.sum(ops.reshape(chosen, (-1, top_k, x.shape[-1])), axis=1)

        return (_take([x], tokens[: rows[0]]), _take([x], tokens[rows[0] :])), gradient

    return gather(x)


def combine(own, extra, gates, choice_of_row, places):
    """Rows of the tiles `(r, d)`, own and spare, weighted by their `gates (s, k)`, back to the tokens: `(s, d)`."""
    rows = ops.shape(own)[0]

    @ops.custom_gradient
    def gather(own, extra, gates):
        chosen = _take([own, extra], places)  # (s, k, d), zeros for a choice that has no row

        def gradient(upstream):
            weights = ops.take(
                ops.concatenate([ops.reshape(gates, (-1,)), ops.zeros((1,), gates.dtype)]), choice_of_row
            )
            of_rows = ops.take(upstream, ops.minimum(choice_of_row, ops.size(gates) - 1) // gates.shape[1], axis=0)
            of_rows = of_rows * weights[:, None]
            return of_rows[:rows], of_rows[rows:], ops.sum(chosen * upstream[:, None], axis=-1)

        return matmul_of_few_rows(gates[:, None], chosen)[:, 0], gradient

    return gather(own, extra, gates)


def with_copies(kernel, owners):
    """Kernels `(e, d, h)` and copies of some `(p, d, h)`, whose gradients are added where they belong."""

    @ops.custom_gradient
    def copy(kernel):
        def gradient(*upstream):
            of_kernel, of_copies = keras.tree.flatten(upstream)
            return ops.cond(
                ops.size(owners) > 0,
                lambda: ops.scatter_update(of_kernel, owners[:, None], of_copies, reduction="add"),
                lambda: of_kernel,  # which the other would copy
            )

        return (kernel, ops.take(kernel, owners, axis=0)), gradient

    return copy(kernel)


def _take(parts, indices):
    """Vectors by index of the parts `(n, d)` behind one another; the index after the last gives the zero vector."""
    nothing = ops.zeros((1, parts[0].shape[-1]), parts[0].dtype)
    return ops.take(ops.concatenate([*parts, nothing], axis=0), indices, axis=0)


def _choices_of(places, rows, choices):
    """The choice of each row `(rows,)`; `choices`, which is none, for an empty row."""
    numbers = ops.cast(ops.arange(choices), "int32")
    return ops.scatter_update(ops.full((rows + 1,), choices, "int32"), places[:, None], numbers)[:rows]


def _is_zero(number):
    """Whether it is 0 beforehand; a number that is known only when the graph runs is not."""
    return isinstance(number, int) and number == 0


def _below_one(gates):
    """Gates `(s, k)` from 0 to 1 as `(s k,)` strictly below 1, so that they order within an expert's number."""
    return ops.reshape(ops.cast(gates, "float32"), (-1,)) * 0.99


@keras.saving.register_keras_serializable("multimodel")
class MoEBlock(Block):
    """Each position goes to the k experts that a gate picks for it.

    `out = LayerNorm(x + sum_i gate_i expert_i(x))` (arXiv 1706.05137, section 2.3, with the gating and the balance
    losses of arXiv 1701.06538). Padding is neither routed nor counted. Works by position, so it is causal as it is;
    a `capacity_factor` alone makes positions compete, in training.

    In training, `balance * (CV^2(importance) + CV^2(load))`, and the other two if they have a weight, are added to
    the losses: by the model over all of a step's tokens, or by the block itself where it stands in another model.

    Args:
        dim: channels in and out.
        num_experts: experts to choose from.
        top_k: experts per position, at most `num_experts`.
        hidden_dim: channels inside an expert; `dim` if None.
        balance: weight of the importance and load losses of arXiv 1701.06538.
        switch_loss: weight of the auxiliary loss of arXiv 2101.03961; 0.01 there.
        z_loss: weight of the router's z-loss of arXiv 2202.08906; 0.001 there.
        capacity_factor: in training, an expert takes at most `capacity_factor * k * positions / num_experts`
            positions (padding included in their number), those with the largest gates; the others pass by. What
            becomes of a position then depends on the others of its batch, later ones too. None: no limit. Inference
            has none.

    Shapes: `(b, n, dim)` -> `(b, n, dim)`; `mask (b, n)`.

    Raises:
        ValueError: if `top_k` is not between 1 and `num_experts`, or `capacity_factor` is not positive.
    """

    pointwise = True

    def __init__(
        self,
        dim,
        num_experts=8,
        top_k=2,
        hidden_dim=None,
        balance=0.01,
        switch_loss=0.0,
        z_loss=0.0,
        capacity_factor=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if not 1 <= top_k <= num_experts:
            raise ValueError(
                f"A position goes to 1 to num_experts experts. Received: top_k={top_k}, num_experts={num_experts}. "
                f"Choose a top_k in that range."
            )
        if capacity_factor is not None and capacity_factor <= 0:
            raise ValueError(
                f"Experts have room for some positions. Received: capacity_factor={capacity_factor}. "
                f"Choose one above 0, such as 1.25, or None for as much as it takes."
            )
        self.dim, self.num_experts, self.top_k = dim, num_experts, top_k
        self.hidden_dim, self.capacity_factor = hidden_dim or dim, capacity_factor
        self.balance, self.switch_loss, self.z_loss = balance, switch_loss, z_loss
        self.router = NoisyTopKRouter(num_experts, top_k, dtype="float32", name="router")
        self.experts = Experts(num_experts, dim, self.hidden_dim, dtype=self.dtype_policy, name="experts")
        self.norm = LayerNorm(dtype=self.dtype_policy)

    def build(self, input_shape, *args, **kwargs):
        self.router.build((None, self.dim))
        self.experts.build()
        self.norm.build(input_shape)
        self.built = True

    def call(self, x, mask=None, context=None, context_mask=None, training=False):
        tokens = ops.reshape(x, (-1, self.dim))
        real = None if mask is None else ops.reshape(mask, (-1,))
        gates, chosen, sums = self.router(tokens, real, training=training)
        record = current_record()
        if record is not None:
            record.add(self, sums, chosen)
        elif training:
            self.add_loss(self.routing_loss(sums))
        capacity = self._capacity(ops.shape(tokens)[0]) if training else None
        y = self.experts(tokens, gates, chosen, capacity=capacity)
        return self.norm(x + ops.reshape(y, ops.shape(x)))

    def _capacity(self, tokens):
        """Positions that one expert takes of `tokens`, padding included, so that it is the same at every step."""
        if self.capacity_factor is None:
            return None
        share = self.capacity_factor * self.top_k / self.num_experts
        if isinstance(tokens, int):
            return min(tokens, math.ceil(share * tokens))
        return ops.minimum(tokens, ops.cast(ops.ceil(share * ops.cast(tokens, "float32")), "int32"))

    def routing_loss(self, sums):
        """The weighted losses of RoutingSums over any number of calls."""
        loss = self.balance * (squared_variation(sums.importance) + squared_variation(sums.load))
        if self.switch_loss:
            loss += self.switch_loss * routing.switch_loss(sums)
        if self.z_loss:
            loss += self.z_loss * routing.z_loss(sums)
        return loss

    def start(self, batch_size, max_length, context=None, context_mask=None):
        return []

    def step(self, x, cache):
        return self(x), cache

    def get_config(self):
        return super().get_config() | {
            "dim": self.dim,
            "num_experts": self.num_experts,
            "top_k": self.top_k,
            "hidden_dim": self.hidden_dim,
            "balance": self.balance,
            "switch_loss": self.switch_loss,
            "z_loss": self.z_loss,
            "capacity_factor": self.capacity_factor,
        }
