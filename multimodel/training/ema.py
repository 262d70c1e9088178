"""Moving averages of weights: with which a model is scored and saved, while it goes on learning with its own.

The optimizer keeps them (`Recipe.ema`). During `fit`, and in a checkpoint of it, the model's weights are the raw ones,
from which a run can go on; `Adam` keeps Keras from replacing them when `fit` ends.
"""

import contextlib

from keras import ops

from multimodel.backend import sync_state
from multimodel.training.adam import adam_of


@contextlib.contextmanager
def averaged_weights(model):
    """While it is entered, the weights of a compiled model are their averages; afterwards the raw ones, bit for bit.

    Does nothing where no averages are kept. It may be entered in a Keras callback, on either backend.
    """
    pairs = _weights_and_averages(model)
    raw = [ops.copy(weight) for weight, _ in pairs]
    keep_averages(model)
    try:
        yield
    finally:
        for (weight, _), value in zip(pairs, raw, strict=True):
            weight.assign(value)


def keep_averages(model):
    """Makes the averages the weights of a compiled model for good. Does nothing where no averages are kept."""
    for weight, average in _weights_and_averages(model):
        weight.assign(ops.copy(average))  # JAX gives away the arrays of a model that it calls


def _weights_and_averages(model):
    optimizer = adam_of(model)
    if not optimizer.use_ema:
        return []
    sync_state(model)
    return list(zip(optimizer._trainable_variables, optimizer._model_variables_moving_average, strict=True))
