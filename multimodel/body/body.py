"""The body: encoder, mixer and decoder, shared by all tasks and blind to modality and task."""

from itertools import chain

import keras
from keras import ops

from multimodel.body.attention import AttentionBlock
from multimodel.body.block import Block, call_pointwise
from multimodel.body.conv import ConvBlock
from multimodel.body.moe import MoEBlock
from multimodel.body.timing import timing_signal


@keras.saving.register_keras_serializable("multimodel")
class Body(keras.layers.Layer):
    """Three lists of blocks (arXiv 1706.05137, section 2.4).

    `encoded = encoder(inputs + timing)`, `decoded = decoder(mixer(shifted targets, encoded), encoded)`.

    Args:
        dim: width of every vector.
        encoder: blocks that see the whole input.
        mixer: causal blocks that bring targets and encoded inputs together.
        decoder: causal blocks.

    `encode` and `decode` take groups of sequences, one for each length, through the blocks side by side: experts see
    the positions of all groups at once.

    Shapes: inputs `(b, n, dim)`, shifted targets `(b, m, dim)` -> `(b, m, dim)`.
    """

    def __init__(self, dim, encoder, mixer, decoder, **kwargs):
        super().__init__(**kwargs)
        self.dim = dim
        self.encoder, self.mixer, self.decoder = list(encoder), list(mixer), list(decoder)

    @classmethod
    def tiny(cls, dim=32, num_experts=4, dropout=0.1, **kwargs):
        """A body for tests: 2 + 1 + 1 ConvBlocks."""
        return cls.stacked(dim, (2, 1, 1), num_experts, min(2, num_experts), dropout, **kwargs)

    @classmethod
    def small(cls, dim=128, num_experts=4, dropout=0.1, **kwargs):
        """A body for laptops: 3 + 1 + 2 ConvBlocks where the paper has 6 + 2 + 4, and few experts."""
        return cls.stacked(dim, (3, 1, 2), num_experts, min(2, num_experts), dropout, **kwargs)

    @classmethod
    def base(cls, dim=512, num_experts=60, dropout=0.1, **kwargs):
        """A body for one GPU: the paper's depths and its 60 experts of one task, at half its width."""
        return cls.stacked(dim, (6, 2, 4), num_experts, min(4, num_experts), dropout, **kwargs)

    @classmethod
    def paper(cls, dim=1024, num_experts=240, dropout=0.4, **kwargs):
        """The published sizes: 6 + 2 + 4 ConvBlocks, 1024 wide, 240 experts of which each position takes 4."""
        return cls.stacked(dim, (6, 2, 4), num_experts, min(4, num_experts), dropout, **kwargs)

    @classmethod
    def stacked(cls, dim, depths, num_experts, top_k, dropout, moe=None, remat=False, **kwargs):
        """The paper's arrangement at any depth: experts in the middle of encoder and of decoder.

        Args:
            dim: width.
            depths: ConvBlocks in encoder, mixer and decoder.
            num_experts: experts of each MoEBlock.
            top_k: experts per position.
            dropout: rate at the end of each ConvBlock.
            moe: arguments of the MoEBlocks, such as `{"capacity_factor": 1.25}`.
            remat: whether ConvBlocks and attention blocks are computed again for the gradient instead of kept: less
                memory, a third more time. (Experts are kept: their noise would be drawn anew.)
        """
        encoder, mixer, decoder = depths
        options = {"top_k": top_k} | (moe or {})
        experts = [MoEBlock(dim, num_experts, name=f"{part}_experts", **options) for part in ("encoder", "decoder")]
        conv = [ConvBlock(dim, False, dropout, remat, name=f"encoder_conv{i}") for i in range(encoder)]
        pairs = [
            [
                ConvBlock(dim, True, dropout, remat, name=f"decoder_conv{i}"),
                AttentionBlock(dim, remat=remat, name=f"decoder_attention{i}"),
            ]
            for i in range(decoder)
        ]
        middle = decoder // 2
        return cls(
            dim,
            encoder=[*conv[: encoder // 2], experts[0], *conv[encoder // 2 :]],
            mixer=[
                AttentionBlock(dim, remat=remat, name="mixer_attention"),
                *(ConvBlock(dim, True, dropout, remat, name=f"mixer_conv{i}") for i in range(mixer)),
            ],
            decoder=[*chain(*pairs[:middle]), experts[1], *chain(*pairs[middle:])],
            **kwargs,
        )

    def build(self, *shapes, **kwargs):
        for block in [*self.encoder, *self.mixer, *self.decoder]:
            if not block.built:
                block.build((None, None, self.dim))
        self.built = True

    def call(self, inputs, shifted, mask=None, shifted_mask=None, training=False):
        """Inputs `(b, n, dim)` and shifted targets `(b, m, dim)` -> decoded `(b, m, dim)`."""
        mask = ops.ones(ops.shape(inputs)[:2], "bool") if mask is None else mask
        shifted_mask = ops.ones(ops.shape(shifted)[:2], "bool") if shifted_mask is None else shifted_mask
        encoded = self.encode([inputs], [mask], training)
        return self.decode([shifted], [shifted_mask], encoded, [mask], training)[0]

    compute_mask = Block.compute_mask

    def encode(self, xs, masks, training=False):
        """Groups of inputs, lists of `(b, n, dim)` and of masks `(b, n)` -> list of `(b, n, dim)`."""
        xs = [x + self._timing(ops.shape(x)[1], x.dtype) for x in xs]
        return self._through(self.encoder, xs, masks, [{}] * len(xs), training)

    def decode(self, xs, masks, encoded, encoded_masks, training=False):
        """Groups of shifted targets, lists of `(b, m, dim)` and of masks, and of encoded inputs `(b, n, dim)` and
        theirs -> list of `(b, m, dim)`."""
        contexts = [{"context": c, "context_mask": m} for c, m in zip(encoded, encoded_masks, strict=True)]
        return self._through([*self.mixer, *self.decoder], xs, masks, contexts, training)

    def _timing(self, length, dtype):
        return timing_signal(length if isinstance(length, int) else ops.arange(length), self.dim, dtype)

    def _through(self, blocks, xs, masks, contexts, training):
        for block in blocks:
            if block.pointwise and len(xs) > 1:
                xs = call_pointwise(block, xs, masks, training=training)
            else:
                xs = [
                    block(x, mask=mask, training=training, **context)
                    for x, mask, context in zip(xs, masks, contexts, strict=True)
                ]
        return xs

    def start(self, encoded, encoded_mask, max_length):
        """The cache before the first position, for up to `max_length` steps."""
        batch_size = ops.shape(encoded)[0]
        return [b.start(batch_size, max_length, encoded, encoded_mask) for b in [*self.mixer, *self.decoder]]

    def step(self, x, cache):
        """One position of mixer and decoder: `x (b, 1, dim)` and the cache to their successors."""
        caches = []
        for block, block_cache in zip([*self.mixer, *self.decoder], cache, strict=True):
            x, block_cache = block.step(x, block_cache)
            caches.append(block_cache)
        return x, caches

    def reorder(self, cache, rows):
        """The cache with its rows in another order, among those of one input: row i was row `rows[i]`."""
        blocks = [*self.mixer, *self.decoder]
        return [block.reorder(block_cache, rows) for block, block_cache in zip(blocks, cache, strict=True)]

    def get_config(self):
        blocks = {
            part: [keras.saving.serialize_keras_object(block) for block in getattr(self, part)]
            for part in ("encoder", "mixer", "decoder")
        }
        return super().get_config() | {"dim": self.dim} | blocks

    @classmethod
    def from_config(cls, config):
        for part in ("encoder", "mixer", "decoder"):
            config[part] = [keras.saving.deserialize_keras_object(block) for block in config[part]]
        return cls(**config)
