"""The sparsely gated mixture of experts: Experts and MoEBlock."""

import keras
from keras import ops

from multimodel.body.block import Block
from multimodel.body.routing import NoisyTopKRouter, record_routing, squared_variation


@keras.saving.register_keras_serializable("multimodel")
class Experts(keras.layers.Layer):
    """Feed-forward experts, `relu(x W1_i) W2_i`, each applied to the tokens that chose it.

    No token is dropped and no row depends on its neighbours. Tokens are sorted by expert into tiles of
    `tile` rows, each tile of one expert, and the tiles are multiplied in one batched product: the arithmetic
    grows with the tokens, not with the number of experts.

    Args:
        num_experts: experts.
        dim: channels in and out.
        hidden_dim: channels between.
        tile: rows of one product.

    Shapes: `x (s, d)`, `gates (s, k)`, `experts (s, k)`, `real (s,)` boolean or None -> `(s, d)`, 0 where not real.
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

    def call(self, x, gates, experts, real=None):
        tokens, top_k = ops.shape(x)[0], experts.shape[1]
        if real is not None:
            experts = ops.where(real[:, None], experts, self.num_experts)  # an expert too many: goes nowhere
            gates = ops.where(real[:, None], gates, 0.0)
        places, tile_experts = self._place(ops.reshape(experts, (-1,)), tokens * top_k)
        rows = ops.shape(tile_experts)[0] * self.tile
        token_of_choice = ops.arange(tokens * top_k) // top_k
        token_of_row = ops.scatter_update(  # an empty row reads the zero vector after the last token
            ops.full((rows + 1,), tokens, "int32"), places[:, None], ops.cast(token_of_choice, "int32")
        )[:rows]
        x = ops.concatenate([x, ops.zeros((1, self.dim), x.dtype)], axis=0)
        x = ops.reshape(ops.take(x, token_of_row, axis=0), (-1, self.tile, self.dim))
        x = ops.relu(ops.matmul(x, ops.take(self.expand, tile_experts, axis=0)))
        x = ops.reshape(ops.matmul(x, ops.take(self.reduce, tile_experts, axis=0)), (-1, self.dim))
        x = ops.concatenate([x, ops.zeros((1, self.dim), x.dtype)], axis=0)
        x = ops.reshape(ops.take(x, places, axis=0), (-1, top_k, self.dim))
        return ops.sum(x * ops.cast(gates, x.dtype)[..., None], axis=1)

    def _place(self, experts, choices):
        """The row of each choice `(s k,)` among the tiles, and the expert of each tile."""
        order = ops.argsort(experts, axis=-1)
        counts = ops.segment_sum(ops.ones_like(experts), experts, self.num_experts + 1)[: self.num_experts]
        tiles = (counts + self.tile - 1) // self.tile
        tile_ends = ops.cumsum(tiles)
        num_tiles = (choices + self.tile - 1) // self.tile + self.num_experts
        tile_experts = ops.searchsorted(tile_ends, ops.arange(num_tiles, dtype=tile_ends.dtype), side="right")
        first_row = ops.concatenate([(tile_ends - tiles) * self.tile, num_tiles * ops.ones(1, "int32") * self.tile])
        first_choice = ops.concatenate([ops.cumsum(counts) - counts, ops.sum(counts, keepdims=True)])
        sorted_experts = ops.take(experts, order)
        rank = ops.arange(choices, dtype="int32") - ops.take(first_choice, sorted_experts)
        rank = ops.where(sorted_experts < self.num_experts, rank, 0)
        rows = ops.take(first_row, sorted_experts) + rank
        places = ops.scatter_update(ops.zeros_like(rows), order[:, None], rows)
        return places, ops.minimum(tile_experts, self.num_experts - 1)

    def get_config(self):
        sizes = {"num_experts": self.num_experts, "dim": self.dim, "hidden_dim": self.hidden_dim, "tile": self.tile}
        return super().get_config() | sizes


@keras.saving.register_keras_serializable("multimodel")
class MoEBlock(Block):
    """Each position goes to the k experts that a gate picks for it.

    `out = LayerNorm(x + sum_i gate_i expert_i(x))` (arXiv 1706.05137, section 2.3, with the gating and the balance
    losses of arXiv 1701.06538). Padding is neither routed nor counted. Works by position, so it is causal as it is.

    In training, `balance * (CV^2(importance) + CV^2(load))` is added to the losses: by the model over all of a
    step's tokens, or by the block itself where it stands in another model.

    Args:
        dim: channels in and out.
        num_experts: experts to choose from.
        top_k: experts per position, at most `num_experts`.
        hidden_dim: channels inside an expert; `dim` if None.
        balance: weight of the balance losses.

    Shapes: `(b, n, dim)` -> `(b, n, dim)`; `mask (b, n)`.

    Raises:
        ValueError: if `top_k` is not between 1 and `num_experts`.
    """

    def __init__(self, dim, num_experts=8, top_k=2, hidden_dim=None, balance=0.01, **kwargs):
        super().__init__(**kwargs)
        if not 1 <= top_k <= num_experts:
            raise ValueError(
                f"A position goes to 1 to num_experts experts. Received: top_k={top_k}, num_experts={num_experts}. "
                f"Choose a top_k in that range."
            )
        self.dim, self.num_experts, self.top_k = dim, num_experts, top_k
        self.hidden_dim, self.balance = hidden_dim or dim, balance
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
        if training and not record_routing(self, sums):
            self.add_loss(self.balance_loss(sums))
        y = self.experts(tokens, gates, chosen, real)
        return self.norm(x + ops.reshape(y, ops.shape(x)))

    def balance_loss(self, sums):
        """The weighted CV^2 of importance and load, for RoutingSums over any number of calls."""
        return self.balance * (squared_variation(sums.importance) + squared_variation(sums.load))

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
        }
