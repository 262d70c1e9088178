"""Layer normalisation, with a gradient written out."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("multimodel")
class LayerNorm(keras.layers.Layer):
    """`(x - mean) / sqrt(variance + 1e-6) * gamma + beta` over the channels (arXiv 1607.06450), in float32.

    The same as Keras' LayerNormalization. There are five norms in each ConvBlock and attention block, and the
    gradient that TensorFlow derives for one is thirty operations; written out it is twelve.

    Shapes: `(..., d)` -> `(..., d)`.
    """

    def build(self, input_shape):
        self.gamma, self.beta = (
            self.add_weight(shape=input_shape[-1:], initializer=initializer, name=name, autocast=False)
            for initializer, name in (("ones", "gamma"), ("zeros", "beta"))
        )
        self.built = True

    def call(self, x):
        gamma, beta = (ops.cast(weight, "float32") for weight in (self.gamma, self.beta))  # tensors, not variables
        return _layer_norm(x, gamma, beta)


@ops.custom_gradient
def _layer_norm(x, gamma, beta):
    dtype = x.dtype
    x = ops.cast(x, "float32")
    x = x - ops.mean(x, axis=-1, keepdims=True)
    scale = ops.rsqrt(ops.mean(ops.square(x), axis=-1, keepdims=True) + 1e-6)
    x = x * scale

    def gradient(upstream):
        upstream = ops.cast(upstream, "float32")
        along = upstream * x
        across = tuple(range(len(x.shape) - 1))
        of_x = upstream * gamma
        of_x = of_x - ops.mean(of_x, axis=-1, keepdims=True) - x * ops.mean(along * gamma, axis=-1, keepdims=True)
        return ops.cast(of_x * scale, dtype), ops.sum(along, axis=across), ops.sum(upstream, axis=across)

    return ops.cast(x * gamma + beta, dtype), gradient
