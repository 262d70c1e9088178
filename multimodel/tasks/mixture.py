"""Mixture: tasks zipped into batches that hold a share of each."""

import dataclasses
import hashlib

import keras
import numpy as np

from multimodel.errors import UserError, unknown
from multimodel.tasks.features import UnreadableInput


class Mixture:
    """Tasks and their rates.

    Args:
        rates: `{task: rate}`; every batch holds each task's share, `rate / sum of rates` of it.

    Raises:
        UserError: if there is no task, two share a name, or a rate is not positive.
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

    def only(self, names):
        """The mixture of some of its tasks, at their rates."""
        return Mixture({self.tasks[name]: self.rates[name] for name in self.tasks if name in names})

    def shares(self, batch_size):
        """`{name: examples}` of one batch: at least one each, the rates as nearly as whole numbers can.

        Raises:
            ValueError: if the batch is smaller than the number of tasks.
        """
        if batch_size < len(self.tasks):
            raise UserError(
                f"A batch holds an example of every task. Received: batch_size={batch_size} for {len(self.tasks)} tasks. "
                f"Choose a batch_size of at least {len(self.tasks)}."
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


def encode_examples(task, split, limit=None, chunk=2048):
    """Reads and encodes the examples of a split, `limit` at most.

    Raises:
        UserError: if there is no such split, no example, a field is missing, or a value cannot be read; the message
            names task, field and example.
    """
    if split not in task.source.splits:
        raise unknown("split", split, task.source.splits)
    examples = task.source.examples(split)[:limit]
    if not len(examples):
        raise UserError(f"A split holds at least one example. Received: 0 in split {split!r} of task {task.name!r}.")
    parts, raw_inputs, raw_targets = [], [], []
    for start in range(0, len(examples), chunk):
        rows = list(enumerate(examples[start : start + chunk], start))
        inputs = [_read(task, task.inputs, index, example) for index, example in rows]
        targets = [_read(task, task.targets, index, example) for index, example in rows]
        parts.append((*_arrays(task.inputs.encode(inputs)), *_arrays(task.targets.encode(targets))))
        raw_inputs += inputs if task.inputs.modality == "text" else []
        raw_targets += targets
    inputs, input_lengths, targets, target_lengths = (
        None if column[0] is None else np.concatenate(column) for column in zip(*parts, strict=True)
    )
    too_long = np.zeros(len(examples), bool)
    if input_lengths is not None:
        too_long |= input_lengths > inputs.shape[1]
    if target_lengths is not None:
        too_long |= target_lengths > targets.shape[1]
    return EncodedExamples(inputs, input_lengths, targets, raw_inputs or None, raw_targets, int(too_long.sum()))


def features_of(task, examples, rows, with_targets=True):
    """What the model reads for `rows` of encoded examples."""
    features = {"inputs": examples.inputs[rows]}
    if examples.input_lengths is not None:
        features["inputs_mask"] = np.arange(examples.inputs.shape[1]) < examples.input_lengths[rows][:, None]
    if with_targets and task.targets.modality == "text":
        features["targets"] = examples.targets[rows]
    return features


class MixedBatches(keras.utils.PyDataset):
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
        super().__init__()
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
            w[name] = np.ones(y[name].shape, "float32") if task.targets.modality == "label" else np.float32(y[name] != 0)
        return x, y, w

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


def _read(task, feature, index, example):
    if feature.field not in example:
        raise UserError(
            f"Task {task.name!r}: every example has the field {feature.field!r}. "
            f"Received: example {index} with {sorted(example)}."
        )
    try:
        return feature.read(example[feature.field])
    except UnreadableInput as error:
        value = example[feature.field]
        shown = f" ({value[:80]!r})" if isinstance(value, str) else ""
        raise UserError(f"Task {task.name!r}, field {feature.field!r}, example {index}{shown}: {error}.") from None


def _arrays(encoded):
    return tuple(None if part is None else np.asarray(part) for part in encoded)
