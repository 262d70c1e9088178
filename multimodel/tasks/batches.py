"""Batches that hold a share of every task."""

import hashlib

import numpy as np
import tensorflow as tf

from multimodel.errors import UserError


def features_of(inputs, lengths):
    """What the model reads of encoded inputs `(b, ...)` and their lengths `(b,)` or None."""
    features = {"inputs": inputs}
    if lengths is not None:
        features["inputs_mask"] = mask_of(inputs.shape[1], lengths)
    return features


def mask_of(size, lengths):
    """`(b, size)` boolean, True before each row's length."""
    return np.arange(size) < lengths[:, None]


def weights_of(task, targets):
    """1 for each real position of targets `(b, m)`; id 0 is padding in text, and a class of labels."""
    return np.ones(targets.shape, "float32") if task.targets.modality == "label" else np.float32(targets != 0)


class MixedBatches:
    """Batches for Keras `fit`: `(x, y, w)`, dicts keyed by task. Batch s is a function of (seed, s) alone.

    Each task is read in an order of its own, drawn from the seed and the task's name: adding a task leaves the
    order of the others as it was. Every epoch of a task has a new order.

    Args:
        tasks: `{name: Task}`.
        examples: `{name: EncodedExamples or LazyExamples}`.
        shares: `{name: examples of a batch}`.
        steps: number of batches.
        seed: of the orders.
    """

    def __init__(self, tasks, examples, shares, steps, seed):
        self.tasks, self.examples, self.shares, self.steps, self.seed = tasks, examples, shares, steps, seed
        self.error: UserError | None = None  # of an example that could not be read, while `dataset` was running
        self._orders: dict[str, tuple[int, np.ndarray]] = {}

    def __len__(self):
        return self.steps

    def __getitem__(self, step):
        x, y, w = {}, {}, {}
        for name, task in self.tasks.items():
            inputs, lengths, y[name] = self.examples[name].arrays(self.rows(name, step))
            x[name] = features_of(inputs, lengths)
            if task.targets.modality == "text":
                x[name]["targets"] = y[name]
            w[name] = weights_of(task, y[name])
        return x, y, w

    def dataset(self):
        """The batches as a `tf.data.Dataset` of static shapes.

        Keras would give its own PyDataset an unknown batch size: TensorFlow then takes 1.7 times as long to trace a
        step, and 1.2 times as long to run it. The number of batches is left unknown (`fit` takes `steps_per_epoch`):
        where Keras knows it, it opens the dataset once more after the last step and throws that away.
        """
        signature = tf.nest.map_structure(lambda array: tf.TensorSpec(array.shape, array.dtype), self[0])
        dataset = tf.data.Dataset.from_generator(
            lambda: map(self._read, range(self.steps)), output_signature=signature
        ).prefetch(2)
        options = tf.data.Options()
        options.autotune.enabled = False  # there is nothing to tune, and to end its thread takes up to a minute
        return dataset.with_options(options)

    def _read(self, step):
        try:
            return self[step]
        except UserError as error:
            self.error = error  # TensorFlow will wrap it in an error of its own
            raise

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
