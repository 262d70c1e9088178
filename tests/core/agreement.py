"""A layer against its NumPy reference: outputs, and gradients against central differences of the reference."""

import keras
import numpy as np
from keras import ops

from tests.core.compiled import compiled, gradients


class Weights:
    """Reads a layer's weights as float64, all but the one that is being moved."""

    def __init__(self):
        self._moved: dict = {}

    def __call__(self, variable):
        if id(variable) in self._moved:
            return self._moved[id(variable)]
        return ops.convert_to_numpy(variable).astype("float64")

    def moved(self, variable, values):
        self._moved = {id(variable): values}
        return self

    def back(self):
        self._moved = {}


def assert_agrees(layer, outputs, reference, inputs, with_gradients=True):
    """Outputs to 1e-5; each gradient, along a random direction, to 1e-4 of its length or of what precision allows.

    Args:
        layer: whose trainable weights are looked at.
        outputs: `tensors -> tensor`, by the layer.
        reference: `(weights, arrays) -> array`, by NumPy; `weights(variable)` reads a weight.
        inputs: float arrays.
        with_gradients: False compares outputs alone.
    """
    random, weights = np.random.default_rng(5), Weights()
    inputs = [keras.Variable(array, name=f"input{i}") for i, array in enumerate(inputs)]

    def expected(variable=None, values=None):
        if variable is not None:
            weights.moved(variable, values)
        result = reference(weights, [weights(array) for array in inputs])
        weights.back()
        return result

    target = expected()
    actual = ops.convert_to_numpy(compiled(outputs)([ops.convert_to_tensor(array) for array in inputs]))
    np.testing.assert_allclose(actual, target, rtol=0, atol=1e-5 * max(1, np.abs(target).max()))
    if not with_gradients:
        return
    direction = random.normal(size=target.shape)

    def loss():
        tensors = [ops.convert_to_tensor(array) for array in inputs]
        result = outputs(tensors)
        return ops.sum(result * ops.cast(direction, result.dtype))

    variables = [*inputs, *layer.trainable_weights]
    for variable, gradient in zip(variables, gradients(loss, variables), strict=True):
        gradient = np.zeros(variable.shape) if gradient is None else gradient
        move = random.normal(size=gradient.shape)
        move *= 1e-6 / np.linalg.norm(move)
        start = weights(variable)
        ahead, behind = ((expected(variable, start + s * move) * direction).sum() for s in (1, -1))
        error = abs((gradient * move).sum() - (ahead - behind) / 2) / np.linalg.norm(move)
        least = 1e-2 if gradient.dtype == np.float32 else 1e-3
        assert error <= 1e-4 * max(np.linalg.norm(gradient), least), variable.path
