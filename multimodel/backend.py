"""How models are compiled and run on the backend at hand."""

import contextlib

import keras
import numpy as np
from keras import ops

CHUNK = 64  # rows of one compiled call
XLA = ("auto", "on", "off")


def compile_for_backend(model, xla="auto", **arguments):
    """`model.compile`, with XLA where it wins, and for training without TensorFlow's graph rewriting, which costs more.

    Args:
        model: a Keras model.
        xla: "on", "off", or "auto": on JAX alone. TensorFlow's own depthwise convolutions are many times faster than
            XLA's on a CPU; on a GPU it has not been measured.
        arguments: of `model.compile`.
    """
    jit = xla == "on" or (xla == "auto" and keras.backend.backend() == "jax")
    if keras.backend.backend() == "tensorflow":
        if xla != "auto":  # which leaves layers as they are: others may have compiled them
            for layer in model._flatten_layers():
                layer.supports_jit = jit
        if not jit and "optimizer" in arguments:
            _trace_quickly()
    model.compile(jit_compile=jit, **arguments)


@contextlib.contextmanager
def same_bits_each_time(xla="auto"):
    """While it is entered, TensorFlow's operations give the same bits whenever they are called with the same values.

    Not with XLA, which Keras then leaves out, and not on a GPU, where it costs time and some operations have no such
    form. It is a setting of the process, and is put back.

    Args:
        xla: as for `compile_for_backend`.
    """
    if keras.backend.backend() != "tensorflow" or xla == "on":
        yield
        return
    import tensorflow as tf
    from tensorflow.python.framework import config  # which alone can put it back

    ours = not config.is_op_determinism_enabled() and not tf.config.list_physical_devices("GPU")
    if ours:
        config.enable_op_determinism()
    try:
        yield
    finally:
        if ours:
            config.disable_op_determinism()


def matmul_of_few_rows(x, y):
    """`ops.matmul` where `x (..., m, k)` has few rows m for each `y (..., k, n)`, as at one position.

    TensorFlow's oneDNN kernel spends 45 us of each call on a CPU on getting started, and Eigen's 15 us. Of the names
    of that product, this one alone is left to Eigen; on a CPU it has no float16 kernel.
    """
    if keras.backend.backend() != "tensorflow" or x.dtype == "float16":
        return ops.matmul(x, y)
    import tensorflow as tf

    return tf.raw_ops.BatchMatMulV3(x=x, y=y, Tout=x.dtype)


def softmax_of_few_rows(x):
    """`ops.softmax` along the last axis where the rows are few: TensorFlow's oneDNN kernel takes 40 us to start."""
    return ops.softmax(x) if keras.backend.backend() != "tensorflow" else ops.exp(ops.log_softmax(x))


def forget_length(x, axis):
    """A tensor whose shape says nothing of its length along an axis, so that it may grow in a loop of TensorFlow's."""
    import tensorflow as tf

    shape = [None if i == axis else length for i, length in enumerate(x.shape)]
    return tf.raw_ops.PlaceholderWithDefault(input=x, shape=shape)


def sync_state(model):
    """Brings the variables of a model up to date while its `fit` runs: on JAX, Keras keeps their values elsewhere, and
    takes them from the variables again after this."""
    if keras.backend.backend() == "jax":
        model.jax_state_sync()


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


def _trace_quickly():
    """Turns TensorFlow's graph rewriting off for this process, where there is no GPU.

    Measured on the quickstart: the first step comes after 13 s rather than 18 s, and no step is slower. (Generation,
    whose loop is of hundreds of small operations, is a sixth slower: it has the rewriting where nothing is trained.)
    """
    import tensorflow as tf

    if not tf.config.list_physical_devices("GPU"):
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
