"""Mixture: tasks zipped into batches that hold a share of each."""

import dataclasses
import hashlib
import pathlib

import numpy as np
import tensorflow as tf

from multimodel.errors import UserError, unknown
from multimodel.tasks.features import UnreadableInputError

CHUNK = 1024  # examples read and encoded at a time


class Mixture:
    """Tasks and their rates.

    Args:
        rates: `{task: rate}`; every batch holds each task's share, `rate / sum of rates` of it.

    Raises:
        UserError: if there is no task, two share a name, a rate is not positive, or tasks that share a net disagree.
    """

    def __init__(self, rates):
        self.rates = {task.name: rate for task, rate in rates.items()}
        self.tasks = {task.name: task for task in rates}
        if not rates or len(self.tasks) < len(rates):
            raise UserError(
                f"A mixture has tasks of different names. Received: {[task.name for task in rates]}. Rename one."
            )
        for name, rate in self.rates.items():
            if not rate > 0:
                raise UserError(f"A rate is positive. Received: {rate} for task {name!r}. Leave the task out instead.")
        self._check_nets()

    def _check_nets(self):
        """Tasks that name the same net must agree in what it reads or writes."""
        users: dict[str, tuple] = {}
        for task in self.tasks.values():
            signature = task.signature()
            for net, feature in ((signature.input_net, task.inputs), (signature.output_net, task.targets)):
                # What a net is made for: a vocabulary, a sample rate, or names of classes.
                kind = feature.modality, *(getattr(feature, a, None) for a in ("vocabulary", "sample_rate", "names"))
                other, known = users.setdefault(net, (task.name, kind))
                if known != kind:
                    raise UserError(
                        f"Tasks that share a net agree in modality, vocabulary, sample rate and labels. Received: "
                        f"{other!r} and {task.name!r}, which share {net!r}. Give the vocabulary or command of one "
                        f"another name."
                    )

    def only(self, names):
        """The mixture of some of its tasks, at their rates."""
        return Mixture({self.tasks[name]: self.rates[name] for name in self.tasks if name in names})

    def net_names(self):
        """Names of the nets that its tasks read and write with."""
        signatures = [task.signature() for task in self.tasks.values()]
        return {name for signature in signatures for name in (signature.input_net, signature.output_net)}

    def shares(self, batch_size):
        """`{name: examples}` of one batch: at least one each, the rates as nearly as whole numbers can.

        Raises:
            ValueError: if the batch is smaller than the number of tasks.
        """
        if batch_size < len(self.tasks):
            raise UserError(
                f"A batch holds an example of every task. Received: batch_size={batch_size} for "
                f"{len(self.tasks)} tasks. Choose a batch_size of at least {len(self.tasks)}."
            )
        total = sum(self.rates.values())
        exact = {name: batch_size * rate / total for name, rate in self.rates.items()}
        shares = {name: max(1, int(value)) for name, value in exact.items()}
        while sum(shares.values()) != batch_size:
            step = 1 if sum(shares.values()) < batch_size else -1
            movable = [name for name in shares if shares[name] + step >= 1]
            name = max(movable, key=lambda n: step * (exact[n] - shares[n]))
            shares[name] += step
        return shares


@dataclasses.dataclass(frozen=True)
class EncodedExamples:
    """The examples of one task and split as arrays.

    Attributes:
        inputs: `(examples, ...)`.
        input_lengths: `(examples,)` before cutting, or None where no length varies.
        targets: `(examples, m)`; 0 is padding in text.
        raw_inputs: canonical values of text, to show beside predictions; None for pictures and sound.
        raw_targets: canonical values of all targets.
        cut: how many inputs or targets are longer than their feature takes.
    """

    inputs: np.ndarray
    input_lengths: np.ndarray | None
    targets: np.ndarray
    raw_inputs: list | None
    raw_targets: list
    cut: int

    def __len__(self):
        return len(self.targets)


def raw_examples(task, split):
    """The examples of a split as the source gives them.

    Raises:
        UserError: if there is no such split, or it is empty.
    """
    if split not in task.source.splits:
        raise unknown("split", split, task.source.splits)
    examples = task.source.examples(split)
    if not len(examples):
        raise UserError(f"A split holds at least one example. Received: 0 in split {split!r} of task {task.name!r}.")
    return examples


def encode_examples(task, split, limit=None):
    """Reads and encodes the examples of a split, `limit` at most.

    Raises:
        UserError: if there is no such split, no example, a field is missing, or a value cannot be read; the message
            names task, field and example.
    """
    examples = raw_examples(task, split)[:limit]
    inputs, input_lengths, raw_inputs = _encode_column(task, task.inputs, examples)
    targets, target_lengths, raw_targets = _encode_column(task, task.targets, examples)
    too_long = np.zeros(len(examples), bool)
    for arrays, lengths in ((inputs, input_lengths), (targets, target_lengths)):
        if lengths is not None:
            too_long |= lengths > arrays.shape[1]
    return EncodedExamples(inputs, input_lengths, targets, raw_inputs or None, raw_targets, int(too_long.sum()))


def _encode_column(task, feature, examples):
    """One feature of all examples: `(arrays, lengths or None, canonical values)`; pictures and sound keep no values.

    By chunks, so that only one of them is in memory both as it was read and as it is encoded.
    """
    lengths, values = [], []
    for start in range(0, len(examples), CHUNK):
        part = [
            read_field(task, feature, i, example) for i, example in enumerate(examples[start : start + CHUNK], start)
        ]
        encoded, sizes = feature.encode(part)
        encoded = np.asarray(encoded)
        if start == 0:
            array = np.empty((len(examples), *encoded.shape[1:]), encoded.dtype)
        array[start : start + len(part)] = encoded
        lengths += [] if sizes is None else [np.asarray(sizes)]
        values += part if feature.modality in ("text", "label") else []
    return array, np.concatenate(lengths) if lengths else None, values


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
        step, and 1.2 times as long to run it.
        """
        signature = tf.nest.map_structure(lambda array: tf.TensorSpec(array.shape, array.dtype), self[0])
        batches = tf.data.Dataset.from_generator(
            lambda: map(self.__getitem__, range(self.steps)), output_signature=signature
        )
        return batches.apply(tf.data.experimental.assert_cardinality(self.steps)).prefetch(2)

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


def read_field(task, feature, index, example):
    """The canonical value of one field; a UserError names task, field and example where it cannot be read."""
    if feature.field not in example:
        raise UserError(
            f"Task {task.name!r}: every example has the field {feature.field!r}. "
            f"Received: example {index} with {sorted(example)}."
        )
    value = example[feature.field]
    if feature.modality in ("image", "audio") and isinstance(value, str):
        value = str(pathlib.Path(getattr(task.source, "folder", "")) / value)
    try:
        return feature.read(value)
    except UnreadableInputError as error:
        shown = f" ({value[:80]!r})" if isinstance(value, str) else ""
        raise UserError(f"Task {task.name!r}, field {feature.field!r}, example {index}{shown}: {error}.") from None
