"""int8 weights, by Keras' own quantisation."""

from keras.layers import Dense, Embedding

FLOAT = ("gate", "noise")  # of routers, whose choice of experts is worth its few weights


def quantize(bundle):
    """Keras' int8 for a Bundle's matrices and tables, in place: a quarter of their memory, answers less exact.

    Experts, routers, norms, depthwise and two-dimensional convolutions stay as they are. It cannot be trained, nor
    saved as a run.
    """
    bundle.model.quantize("int8", filters=_can_be_quantized)


def _can_be_quantized(layer):
    return isinstance(layer, Dense | Embedding) and layer.name not in FLOAT
