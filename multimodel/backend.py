"""How models are compiled and run on the backend at hand."""

import keras
import numpy as np

CHUNK = 64  # rows of one compiled call


def compile_for_backend(model, **arguments):
    """`model.compile`, with XLA on JAX alone: on a CPU, TensorFlow's own depthwise convolutions are many times faster
    than XLA's."""
    model.compile(jit_compile=keras.backend.backend() == "jax", **arguments)


def predict_in_chunks(model, features):
    """`model.predict_on_batch` over features `{name: (b, ...)}`, CHUNK rows at a time -> `{name: (b, ...)}`.

    Once the model has seen a whole chunk, a smaller one is filled up with rows that are thrown away: one of its own
    size would be compiled on its own.
    """
    size = len(features["inputs"])
    parts = []
    for start in range(0, size, CHUNK):
        batch = {name: rows[start : start + CHUNK] for name, rows in features.items()}
        kept = len(batch["inputs"])
        model.saw_chunk = getattr(model, "saw_chunk", False) or kept == CHUNK
        if model.saw_chunk and kept < CHUNK:
            batch = {name: np.resize(rows, (CHUNK, *rows.shape[1:])) for name, rows in batch.items()}
        parts.append({name: rows[:kept] for name, rows in model.predict_on_batch(batch).items()})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def trace_quickly():
    """Turns TensorFlow's graph rewriting off for this process, where there is no GPU.

    Measured on the quickstart: the first step comes after 13 s rather than 18 s, and no step is slower.
    """
    if keras.backend.backend() != "tensorflow":
        return
    import tensorflow as tf

    if not tf.config.list_physical_devices("GPU"):
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
