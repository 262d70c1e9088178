"""The sparsely gated mixture of experts: Experts and MoEBlock."""

import math

import keras
from keras import ops

from multimodel.body.block import Block
from multimodel.body.routing import NoisyTopKRouter, current_record, squared_variation, switch_loss, z_loss


@keras.saving.register_keras_serializable("multimodel")
class Experts(keras.layers.Layer):
    """Feed-forward experts, `relu(x W1_i) W2_i`, each applied to the tokens that chose it.

    Tokens are sorted by expert into rows of tiles, each tile of one expert, and the tiles are multiplied in one
    batched product: the arithmetic grows with the tokens, not with the number of experts. Without a capacity there
    are as many tiles of `tile` rows as the tokens need: none is dropped, and no row depends on its neighbours. With
    one, each expert has one tile of that many rows; it keeps the tokens with the largest gates and drops the rest.

    Args:
        num_experts: experts.
        dim: channels in and out.
        hidden_dim: channels between.
        tile: rows of one product.

    Shapes: `x (s, d)`, `gates (s, k)`, `experts (s, k)` where `num_experts` stands for none, `capacity` a number of
    tokens or None -> `(s, d)`.
    """

    def __init__(self, num_experts, dim, hidden_dim, tile=64, **kwargs):
        super().__init__(**kwargs)
        self.num_experts, self.dim, self.hidden_dim, self.tile = num_experts, dim, hidden_dim, tile

    def build(self, *shapes):
        def kernel(rows, columns, name):
            scale = keras.initializers.RandomNormal(stddev=rows**-0.5)
            return self.add_weight(shape=(self.num_experts, rows, columns), initializer=scale, name=name)

        self.expand = kernel(self.dim, self.hidden_dim, "expand")
        self.reduce = kernel(self.hidden_dim, self.dim, "reduce")
        self.built = True

    def call(self, x, gates, experts, capacity=None):
        tokens, top_k = ops.shape(x)[0], experts.shape[1]
        experts = ops.reshape(experts, (-1,))
        counts = ops.segment_sum(ops.ones_like(experts), experts, self.num_experts + 1)[: self.num_experts]
        if capacity is None:
            tile, order = self.tile, ops.argsort(experts, axis=-1)
            first_rows, tile_experts = self._tiles(counts, tokens * top_k)
            expand, reduce = (ops.take(kernel, tile_experts, axis=0) for kernel in (self.expand, self.reduce))
            rows = ops.shape(tile_experts)[0] * tile
        else:
            tile, order = capacity, ops.argsort(ops.cast(experts, "float32") - _below_one(gates), axis=-1)
            first_rows = ops.arange(self.num_experts, dtype="int32") * capacity
            expand, reduce = self.expand, self.reduce
            rows = self.num_experts * capacity
        places = self._places(experts, order, counts, first_rows, rows, capacity)
        x = self._gather(x, self._tokens_of(places, top_k, tokens, rows))
        x = ops.reshape(x, (-1, tile, self.dim))
        x = ops.matmul(ops.relu(ops.matmul(x, expand)), reduce)
        x = self._gather(ops.reshape(x, (-1, self.dim)), places)
        x = ops.reshape(x, (-1, top_k, self.dim))
        return ops.sum(x * ops.cast(gates, x.dtype)[..., None], axis=1)

    def _tiles(self, counts, choices):
        """The first row of each expert `(e,)`, and the expert of each tile."""
        tiles = (counts + self.tile - 1) // self.tile
        ends = ops.cumsum(tiles)
        busy = min(choices, self.num_experts) if isinstance(choices, int) else self.num_experts
        num_tiles = (choices + busy * (self.tile - 1)) // self.tile  # the most that `busy` experts can need
        tile_experts = ops.searchsorted(ends, ops.arange(num_tiles, dtype=ends.dtype), side="right")
        return (ends - tiles) * self.tile, ops.minimum(tile_experts, self.num_experts - 1)

    def _places(self, experts, order, counts, first_rows, rows, capacity):
        """The row of each choice `(s k,)`; `rows`, which is none, for a choice that goes to no expert."""
        first_choices = ops.cumsum(counts) - counts
        sorted_experts = ops.take(experts, order)
        known = ops.minimum(sorted_experts, self.num_experts - 1)
        rank = ops.arange(ops.shape(experts)[0], dtype="int32") - ops.take(first_choices, known)
        kept = sorted_experts < self.num_experts
        if capacity is not None:
            kept = ops.logical_and(kept, rank < capacity)
        places = ops.where(kept, ops.take(first_rows, known) + rank, rows)
        return ops.scatter_update(ops.zeros_like(places), order[:, None], places)

    def _tokens_of(self, places, top_k, tokens, rows):
        """The token of each row `(rows,)`; `tokens`, which is none, for an empty row."""
        token_of_choice = ops.cast(ops.arange(tokens * top_k) // top_k, "int32")
        return ops.scatter_update(ops.full((rows + 1,), tokens, "int32"), places[:, None], token_of_choice)[:rows]

    def _gather(self, x, indices):
        """Vectors of `x` by index; the index after the last one gives the zero vector."""
        return ops.take(ops.concatenate([x, ops.zeros((1, self.dim), x.dtype)], axis=0), indices, axis=0)

    def get_config(self):
        sizes = {"num_experts": self.num_experts, "dim": self.dim, "hidden_dim": self.hidden_dim, "tile": self.tile}
        return super().get_config() | sizes


def _below_one(gates):
    """Gates `(s, k)` from 0 to 1 as `(s k,)` strictly below 1, so that they order within an expert's number."""
    return ops.reshape(ops.cast(gates, "float32"), (-1,)) * 0.99


@keras.saving.register_keras_serializable("multimodel")
class MoEBlock(Block):
    """Each position goes to the k experts that a gate picks for it.

    `out = LayerNorm(x + sum_i gate_i expert_i(x))` (arXiv 1706.05137, section 2.3, with the gating and the balance
    losses of arXiv 1701.06538). Padding is neither routed nor counted. Works by position, so it is causal as it is.

    In training, `balance * (CV^2(importance) + CV^2(load)) + switch * switch_loss + z * z_loss` is added to the
    losses: by the model over all of a step's tokens, or by the block itself where it stands in another model.

    Args:
        dim: channels in and out.
        num_experts: experts to choose from.
        top_k: experts per position, at most `num_experts`.
        hidden_dim: channels inside an expert; `dim` if None.
        balance: weight of the importance and load losses of arXiv 1701.06538.
        switch: weight of the auxiliary loss of arXiv 2101.03961; 0.01 there.
        z: weight of the router's z-loss of arXiv 2202.08906; 0.001 there.
        capacity_factor: in training, an expert takes at most `capacity_factor * k * positions / num_experts`
            positions, those with the largest gates; the others pass by. None: all. Inference always takes all.

    Shapes: `(b, n, dim)` -> `(b, n, dim)`; `mask (b, n)`.

    Raises:
        ValueError: if `top_k` is not between 1 and `num_experts`, or `capacity_factor` is not positive.
    """

    def __init__(
        self,
        dim,
        num_experts=8,
        top_k=2,
        hidden_dim=None,
        balance=0.01,
        switch=0.0,
        z=0.0,
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
        self.balance, self.switch, self.z = balance, switch, z
        self.router = NoisyTopKRouter(num_experts, top_k, dtype="float32", name="router")
        self.experts = Experts(num_experts, dim, self.hidden_dim, dtype=self.dtype_policy, name="experts")
        self.norm = keras.layers.LayerNormalization(epsilon=1e-6, dtype=self.dtype_policy)

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
        return min(tokens, math.ceil(self.capacity_factor * self.top_k * tokens / self.num_experts))

    def routing_loss(self, sums):
        """The weighted losses of RoutingSums over any number of calls."""
        loss = self.balance * (squared_variation(sums.importance) + squared_variation(sums.load))
        if self.switch:
            loss += self.switch * switch_loss(sums)
        if self.z:
            loss += self.z * z_loss(sums)
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
            "switch": self.switch,
            "z": self.z,
            "capacity_factor": self.capacity_factor,
        }
