"""Batches that hold a share of every task."""

import collections
import hashlib

import numpy as np
import tensorflow as tf

from multimodel.errors import UserError
from multimodel.tasks.augmentation import Augmentation


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
    """Batches for Keras `fit`: `(x, y, w)`, dicts keyed by task. Batch i is a function of (seed, i) alone.

    Each task is read in an order of its own, drawn from the seed and the task's name: adding a task leaves the
    order of the others as it was. Every epoch of a task has a new order. An example that turns out unusable when it is
    read weighs nothing. Step s takes the s-th batch of those that are not passed over.

    Args:
        tasks: `{name: Task}`.
        examples: `{name: EncodedExamples or LazyExamples}`.
        shares: `{name: examples of a batch}`.
        steps: of training.
        seed: of the orders, and of augmentation.

    Attributes:
        passed_over: numbers of batches that no step takes.
    """

    def __init__(self, tasks, examples, shares, steps, seed):
        self.tasks, self.examples, self.shares, self.steps, self.seed = tasks, examples, shares, steps, seed
        self.passed_over: set[int] = set()
        self.error: UserError | None = None  # that ended the reading, while `dataset` was running
        self._augmentations = {name: Augmentation(task) for name, task in tasks.items() if task.augmentation}
        self._orders: dict[str, tuple[int, np.ndarray]] = {}
        self._usage: dict[int, dict] = {}
        self._begin: dict = {"step": 0, "batch": 0, "places": {}}

    def __len__(self):
        return self.steps

    def __getitem__(self, batch):
        x, y, w = {}, {}, {}
        for name, task in self.tasks.items():
            inputs, lengths, y[name], usable = self.examples[name].arrays(self.rows(name, batch))
            if name in self._augmentations:
                inputs = self._augmentations[name](inputs, self.seed, batch)
            x[name] = features_of(inputs, lengths)
            if task.targets.modality == "text":
                x[name]["targets"] = y[name]
            w[name] = weights_of(task, y[name]) * usable[:, None]
        return x, y, w

    def dataset(self, first=0):
        """What the steps from `first` on take, as a `tf.data.Dataset` of static shapes.

        Keras would give its own PyDataset an unknown batch size: TensorFlow then takes 1.7 times as long to trace a
        step, and 1.2 times as long to run it. The number of batches is left unknown (`fit` takes `steps_per_epoch`):
        where Keras knows it, it opens the dataset once more after the last step and throws that away.
        """
        signature = tf.nest.map_structure(
            lambda array: tf.TensorSpec(array.shape, array.dtype), self[self.batch(first)]
        )
        usage = self._usage = {}  # a former dataset may still be reading ahead
        dataset = tf.data.Dataset.from_generator(
            lambda: (self._read(step, usage) for step in range(first, self.steps)), output_signature=signature
        ).prefetch(2)
        options = tf.data.Options()
        options.autotune.enabled = False  # there is nothing to tune, and to end its thread takes up to a minute
        return dataset.with_options(options)

    def _read(self, step, usage):
        try:
            batch = self[self.batch(step)]
        except UserError as error:
            self.error = error  # TensorFlow will wrap it in an error of its own
            raise
        usage[step] = usage_of(self.tasks, batch)
        return batch

    def usage(self, step):
        """`{task: Counter}` of what `step` took, as `usage_of` gives it; once, after `dataset` has given it."""
        return self._usage.pop(step)

    def batch(self, step):
        """The number of the batch that a step takes."""
        number = self._begin["batch"] + step - self._begin["step"]
        for bad in sorted(self.passed_over):
            number += self._begin["batch"] <= bad <= number
        return number

    def rows(self, name, batch):
        """The rows of a task's examples that a batch holds."""
        first = self._begin["places"].get(name, 0) + (batch - self._begin["batch"]) * self.shares[name]
        places = np.arange(first, first + self.shares[name])
        size = len(self.examples[name])
        return np.array([self._order(name, epoch)[place] for epoch, place in zip(*divmod(places, size), strict=True)])

    def source_rows(self, name, batch):
        """The rows of a task's training split that a batch holds."""
        return self.examples[name].source_rows(self.rows(name, batch))

    def position(self, step):
        """Where reading stands when `step` is next, for `start_at`: JSON values."""
        batch = self.batch(step)
        ahead = batch - self._begin["batch"]
        places = {name: self._begin["places"].get(name, 0) + ahead * share for name, share in self.shares.items()}
        return {"step": step, "batch": batch, "places": places, "passed_over": sorted(self.passed_over)}

    def start_at(self, position):
        """Goes on where a `position` stood; a task that was not there begins at its first example."""
        self._begin = {name: position[name] for name in ("step", "batch", "places")}
        self.passed_over = set(position["passed_over"])

    def _order(self, name, epoch):
        order = self._orders.get(name)
        if order is None or order[0] != epoch:
            key = hashlib.sha256(f"{self.seed}/{name}/{epoch}".encode()).digest()
            generator = np.random.Generator(np.random.Philox(key=int.from_bytes(key[:16], "little")))
            order = self._orders[name] = epoch, generator.permutation(len(self.examples[name]))
        return order[1]


def usage_of(tasks, batch):
    """What a batch holds of each task.

    Returns:
        `{task: Counter}` of `examples`; `tokens`, the ids of real text; and `inputs`, `real_inputs`, `targets`,
        `real_targets`: the positions of text and samples of clips, with padding and without.
    """
    x, _, w = batch
    usage = {}
    for name, task in tasks.items():
        real = collections.Counter(examples=int(w[name].any(axis=1).sum()))
        if "inputs_mask" in x[name]:
            real["inputs"], real["real_inputs"] = x[name]["inputs_mask"].size, int(x[name]["inputs_mask"].sum())
        if task.targets.modality == "text":
            real["targets"], real["real_targets"] = w[name].size, int(w[name].sum())
        real["tokens"] = real["real_targets"] + (real["real_inputs"] if task.inputs.modality == "text" else 0)
        usage[name] = real
    return usage
