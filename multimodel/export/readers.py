"""Readers: raw strings to encoded inputs by TensorFlow operations alone, as an exported graph needs.

They give what `feature.encode([feature.read(content)])` gives in Python, for the kinds of files that they know.
"""

import tensorflow as tf
import tensorflow_text

from multimodel.export.graph_audio import read_clip
from multimodel.export.graph_images import read_picture

NUM_THREADS = 4


def read_text(feature, raw):
    """UTF-8 strings `(b,)` -> ids `(b, max_length)` and their lengths before cutting `(b,)`."""
    valid = tf.strings.unicode_transcode(raw, "UTF-8", "UTF-8", errors="replace") == raw
    raw = _checked(raw, tf.where(valid, "", "text is not UTF-8"))
    if feature.normalization:
        raw = tensorflow_text.normalize_utf8(raw, feature.normalization)
    return feature.encode(raw)


def read_images(feature, raw):
    """PNG, JPEG, GIF or BMP files `(b,)` -> uint8 `(b, height, width, 3)`, and None since no length varies."""
    nothing = tf.zeros(feature.shape, tf.uint8)
    pictures, reasons = _each(raw, lambda content: read_picture(feature, content), nothing)
    return _checked(tf.ensure_shape(pictures, (None, *feature.shape)), reasons), None


def read_audio(feature, raw):
    """WAV files `(b,)` -> 16-bit samples `(b, max samples)` and their lengths before cutting `(b,)`."""
    nothing = tf.zeros(feature.shape, tf.int16), 0
    (clips, lengths), reasons = _each(raw, lambda content: read_clip(feature, content), nothing)
    return _checked(tf.ensure_shape(clips, (None, *feature.shape)), reasons), lengths


READERS = {"text": read_text, "image": read_images, "audio": read_audio}


def read_inputs(feature, raw):
    """Raw strings `(b,)` -> encoded inputs and their lengths or None, as `feature.encode` gives them.

    Raises:
        tf.errors.InvalidArgumentError: when the graph runs, with "row N: reason" for the first row that is unreadable.
    """
    inputs, lengths = READERS[feature.modality](feature, raw)
    if lengths is not None and feature.too_long == "refuse":
        longest = feature.shape[0]
        inputs = _checked(inputs, tf.where(lengths > longest, f"too long, of {longest} at most", ""))
    return inputs, lengths


def _each(raw, read, nothing):
    """`read` of each row, in threads: results `(b, ...)` and reasons `(b,)`, empty where there is a result.

    An operation that fails on a damaged file would end the whole graph; a dataset can pass it over.
    """

    def read_one(content):
        whole = tf.data.Dataset.from_tensors(content).map(read).ignore_errors()
        damaged = tf.data.Dataset.from_tensors((nothing, "damaged, or not what it says it is"))
        return whole.concatenate(damaged).take(1)

    rows = tf.data.Dataset.from_tensor_slices(raw).interleave(
        read_one, cycle_length=NUM_THREADS, num_parallel_calls=NUM_THREADS, deterministic=True
    )
    options = tf.data.Options()
    options.autotune.enabled = False
    # One more, so that there is something where there are no rows.
    rows = rows.concatenate(tf.data.Dataset.from_tensors((nothing, ""))).with_options(options)
    size = tf.size(raw, tf.int64)
    results, reasons = rows.batch(size + 1).get_single_element()
    return tf.nest.map_structure(lambda x: x[:-1], results), reasons[:-1]


def _checked(values, reasons):
    """The values, if no row has a reason against it `(b,)`."""
    bad = tf.where(reasons != "")[:, 0]
    readable = tf.size(bad) == 0
    shown = tf.cond(
        readable, lambda: "", lambda: tf.strings.join(["row ", tf.as_string(bad[0]), ": ", reasons[bad[0]]])
    )
    with tf.control_dependencies([tf.Assert(readable, [shown], name="readable")]):
        return tf.identity(values)
