"""Gradients and compiled calls on the backend at hand."""

import keras
from keras import ops


def gradients(loss, variables, state=()):
    """Arrays: the gradients of the scalar `loss()` in each of `variables`, None where it does not depend on one.

    `state` is what `loss` changes beside, such as random seeds.
    """
    if keras.backend.backend() == "jax":
        import jax

        before = [variable.value for variable in state]

        def stateless(values):
            with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
                return loss()

        values = jax.jit(jax.grad(stateless))([variable.value for variable in variables])
        for variable, value in zip(state, before, strict=True):
            variable.assign(value)
    else:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            value = loss()
        values = tape.gradient(value, [variable.value for variable in variables])
        values = [None if value is None else tf.convert_to_tensor(value) for value in values]
    return [None if value is None else ops.convert_to_numpy(value) for value in values]


def compiled(function):
    """The function, compiled where the backend is slow without: JAX compiles operation by operation otherwise.

    Weights are constants of the compiled function: do not assign to them between calls.
    """
    if keras.backend.backend() != "jax":
        return function
    import jax

    return jax.jit(function)
