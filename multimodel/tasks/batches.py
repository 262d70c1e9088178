"""Batches that hold a share of every task."""

import hashlib

import numpy as np
import tensorflow as tf


def features_of(task, examples, rows):
    """What the model reads in training for `rows` of encoded examples."""
    features = {"inputs": examples.inputs[rows]}
    if examples.input_lengths is not None:
        features["inputs_mask"] = mask_of(examples.inputs.shape[1], examples.input_lengths[rows])
    if task.targets.modality == "text":
        features["targets"] = examples.targets[rows]
    return features


def mask_of(size, lengths):
    """`(b, size)` boolean, True before each row's length."""
    return np.arange(size) < lengths[:, None]


class MixedBatches:
    """Batches for Keras `fit`: `(x, y, w)`, dicts keyed by task. Batch s is a function of (seed, s) alone.

    Each task is read in an order of its own, drawn from the seed and the task's name: adding a task leaves the
    order of the others as it was. Every epoch of a task has a new order.

    Args:
        tasks: `{name: Task}`.
        examples: `{name: EncodedExamples}`.
        shares: `{name: examples of a batch}`.
        steps: number of batches.
        seed: of the orders.
    """

    def __init__(self, tasks, examples, shares, steps, seed):
        self.tasks, self.examples, self.shares, self.steps, self.seed = tasks, examples, shares, steps, seed
        self._orders: dict[str, tuple[int, np.ndarray]] = {}

    def __len__(self):
        return self.steps

    def __getitem__(self, step):
        x, y, w = {}, {}, {}
        for name, task in self.tasks.items():
            rows = self.rows(name, step)
            x[name] = features_of(task, self.examples[name], rows)
            y[name] = self.examples[name].targets[rows]
            w[name] = (
                np.ones(y[name].shape, "float32") if task.targets.modality == "label" else np.float32(y[name] != 0)
            )
        return x, y, w

    def dataset(self):
        """The batches as a `tf.data.Dataset` of static shapes.

        Keras would give its own PyDataset an unknown batch size: TensorFlow then takes 1.7 times as long to trace a
        step, and 1.2 times as long to run it. The number of batches is left unknown (`fit` takes `steps_per_epoch`):
        where Keras knows it, it opens the dataset once more after the last step and throws that away.
        """
        signature = tf.nest.map_structure(lambda array: tf.TensorSpec(array.shape, array.dtype), self[0])
        return tf.data.Dataset.from_generator(
            lambda: map(self.__getitem__, range(self.steps)), output_signature=signature
        ).prefetch(2)

    def rows(self, name, step):
        """The rows of a task's examples that batch `step` holds."""
        places = np.arange(step * self.shares[name], (step + 1) * self.shares[name])
        size = len(self.examples[name])
        return np.array([self._order(name, epoch)[place] for epoch, place in zip(*divmod(places, size), strict=True)])

    def _order(self, name, epoch):
        if self._orders.get(name, (None,))[0] != epoch:
            key = hashlib.sha256(f"{self.seed}/{name}/{epoch}".encode()).digest()
            generator = np.random.Generator(np.random.Philox(key=int.from_bytes(key[:16], "little")))
            self._orders[name] = epoch, generator.permutation(len(self.examples[name]))
        return self._orders[name][1]
