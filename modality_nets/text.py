"""Text: subword ids in, logits over subwords out (arXiv 1706.05137, section 2.5.1)."""

import keras
from keras import ops

from modality_nets.base import InputNet, OutputNet


def _embedding(vocabulary_size, dim, layer, name):
    normal = keras.initializers.RandomNormal(stddev=dim**-0.5)
    return keras.layers.Embedding(
        vocabulary_size, dim, embeddings_initializer=normal, dtype=layer.dtype_policy, name=name
    )


@keras.saving.register_keras_serializable("multimodel")
class TextInputNet(InputNet):
    """`vectors = W[ids] * sqrt(dim)`.

    Args:
        vocabulary_size: rows of the table.
        dim: the body's width.

    Shapes: ids `(b, n)` -> `(b, n, dim)`. Without a mask, id 0 is padding.
    """

    def __init__(self, vocabulary_size, dim, **kwargs):
        super().__init__(**kwargs)
        self.vocabulary_size, self.dim = vocabulary_size, dim
        self.embedding = _embedding(vocabulary_size, dim, self, "embedding")

    def build(self, *shapes, **kwargs):
        self.embedding.build((None, None))
        self.built = True

    def call(self, inputs, mask=None):
        mask = ops.not_equal(inputs, 0) if mask is None else mask
        return self.embedding(inputs) * self.dim**0.5, mask

    def get_config(self):
        return super().get_config() | {"vocabulary_size": self.vocabulary_size, "dim": self.dim}


@keras.saving.register_keras_serializable("multimodel")
class TextOutputNet(OutputNet):
    """`logits = vectors W_softmax`, with a table of its own for the targets that the decoder reads.

    Args:
        vocabulary_size: classes of an output position.
        dim: the body's width.
        tied: whether the table of targets is also W_softmax, as it is not in the paper.

    Shapes: `(b, m, dim)` -> `(b, m, vocabulary_size)`; `embed`: `(b, m)` -> `(b, m, dim)`.
    """

    def __init__(self, vocabulary_size, dim, tied=False, **kwargs):
        super().__init__(**kwargs)
        self.vocabulary_size, self.dim, self.tied = vocabulary_size, dim, tied
        self.embedding = _embedding(vocabulary_size, dim, self, "embedding")
        if not tied:
            self.softmax = keras.layers.Dense(vocabulary_size, use_bias=False, dtype=self.dtype_policy, name="softmax")

    def build(self, *shapes, **kwargs):
        self.embedding.build((None, None))
        if not self.tied:
            self.softmax.build((None, None, self.dim))
        self.built = True

    def embed(self, targets):
        return self.embedding(targets) * self.dim**0.5

    def call(self, vectors, mask=None):
        if self.tied:
            table = ops.cast(ops.convert_to_tensor(self.embedding.embeddings), self.compute_dtype)
            return ops.matmul(vectors, ops.transpose(table))
        return self.softmax(vectors)

    def get_config(self):
        return super().get_config() | {
            "vocabulary_size": self.vocabulary_size,
            "dim": self.dim,
            "tied": self.tied,
        }
