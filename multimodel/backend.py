"""How models are compiled on the backend at hand."""

import keras


def compile_for_backend(model, **arguments):
    """`model.compile`, with XLA on JAX alone: on a CPU, TensorFlow's own depthwise convolutions are many times faster
    than XLA's."""
    model.compile(jit_compile=keras.backend.backend() == "jax", **arguments)
