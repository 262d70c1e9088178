"""Augmentation: Keras layers over each training example, in an order of chance that depends on seed and step alone."""

import hashlib

import keras
import numpy as np
import tensorflow as tf
from keras.src.layers.preprocessing.data_layer import DataLayer  # Keras documents it for this use, without another name

from multimodel.errors import UserError


class SpecAugment(DataLayer):
    """Silences spans of time and bands of frequency of a waveform, as SpecAugment does to spectrograms
    (arXiv 1904.08779).

    Each span or band has a width between 0 and the largest one, and any place.

    Args:
        time_masks: number of spans.
        max_time: width of a span at most, as a share of the clip.
        frequency_masks: number of bands.
        max_frequency: width of a band at most, as a share of all frequencies.
        seed: of the layer where it is used alone; training sets its own.

    Shapes: `(b, samples)` -> `(b, samples)`.
    """

    def __init__(self, time_masks=1, max_time=0.1, frequency_masks=1, max_frequency=0.1, seed=None, **options):
        super().__init__(**options)
        self.time_masks, self.max_time = time_masks, max_time
        self.frequency_masks, self.max_frequency = frequency_masks, max_frequency
        self.seed = seed
        self.generator = keras.random.SeedGenerator(seed)

    def call(self, inputs, training=True):
        if not training:
            return inputs
        waves, length = inputs, inputs.shape[-1]
        for _ in range(self.time_masks):
            waves *= self._kept(waves, length, self.max_time)
        if self.frequency_masks:
            real, imaginary = self.backend.math.rfft(waves)
            kept = 1.0
            for _ in range(self.frequency_masks):
                kept *= self._kept(waves, real.shape[-1], self.max_frequency)
            waves = self.backend.math.irfft((real * kept, imaginary * kept), length)
        return waves

    def _kept(self, waves, size, widest):
        """`(b, size)`: 0 in a span of each row, 1 elsewhere."""
        seed = self._get_seed_generator(self.backend._backend)
        shape = (self.backend.shape(waves)[0], 1)
        width = self.backend.random.uniform(shape, 0, widest * size, seed=seed)
        start = self.backend.random.uniform(shape, seed=seed) * (size - width)
        places = self.backend.numpy.arange(size, dtype="float32")
        inside = (places >= start) & (places < start + width)
        return 1.0 - self.backend.cast(inside, "float32")

    def get_config(self):
        names = ("time_masks", "max_time", "frequency_masks", "max_frequency", "seed")
        return super().get_config() | {name: getattr(self, name) for name in names}


class Augmentation:
    """A task's layers, compiled for its share of a batch.

    Keras draws some transformations (of a RandomCrop, of RandAugment) once for all that it is given; so each example
    passes by itself.

    Args:
        task: a Task with `augmentation`.

    Raises:
        UserError: if a layer fails, or inputs leave with another shape.
    """

    def __init__(self, task):
        self._task = task
        spec = tf.TensorSpec((None, *task.inputs.shape), task.inputs.dtype)
        try:
            self._apply = tf.function(self._all).get_concrete_function(spec)
        except Exception as error:  # whatever a user's layer raises
            reason = " ".join(str(error).split())[:300]
            raise UserError(
                f"Task {task.name!r}: augmentation takes inputs of shape {task.inputs.shape}. "
                f"Received: {[layer.name for layer in task.augmentation]}, which failed ({reason})."
            ) from error
        shape = tuple(self._apply.structured_outputs.shape[1:])
        if shape != task.inputs.shape:
            raise UserError(
                f"Task {task.name!r}: augmentation keeps the shape of inputs. Received: {task.inputs.shape} in and "
                f"{shape} out. End with keras.layers.Resizing, or begin with it before a crop."
            )
        self._states = [state for layer in task.augmentation for state in _seed_states(layer)]

    def __call__(self, inputs, seed, step):
        """Augmented inputs `(b, ...)` of one step, of the dtype that they had."""
        for number, state in enumerate(self._states):
            digest = hashlib.sha256(f"{seed}/{self._task.name}/{step}/{number}".encode()).digest()
            state.assign(np.frombuffer(digest[:8], "uint32").astype(state.dtype))
        return self._apply(tf.constant(inputs)).numpy()

    def _all(self, inputs):
        return tf.map_fn(self._one, inputs)

    def _one(self, example):
        x = tf.cast(example, tf.float32)[None]
        for layer in self._task.augmentation:
            x = layer(x, training=True)
        x = tf.clip_by_value(tf.round(x[0]), example.dtype.min, example.dtype.max)
        return tf.cast(x, example.dtype)


def _seed_states(layer):
    """The variables that the random numbers of a layer, and of those inside it, come from; known once it has run."""
    states = []
    for part in layer._flatten_layers():
        # Keras gives a data layer one more generator for each backend that it runs on.
        generators = [getattr(part, "generator", None), *getattr(part, "_backend_generators", {}).values()]
        states += [generator.state for generator in generators if generator is not None]
    return states
