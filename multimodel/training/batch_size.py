"""The largest batch that fits into memory: small ones are tried, and what they took is extrapolated."""

import dataclasses
import math
import warnings

import keras

from multimodel.errors import UserError
from multimodel.tasks.batches import MixedBatches
from multimodel.training.build import build_model, compile_model
from multimodel.training.memory_at_hand import memory_at_hand

AUTO = "auto"
SHARE = 0.8  # of the memory that there is
SMALLEST = 32  # examples of the first batch that is tried, about
TELLING = 256 * 2**20  # bytes that a doubled batch takes more; fewer say little beside what else comes and goes


@dataclasses.dataclass(frozen=True)
class Taken:
    """Bytes that there were in memory before a step of `size` examples, and most that there were while it ran."""

    size: int
    before: int
    peak: int

    @property
    def own(self):
        return self.peak - self.before


def fitting_batch_size(recipe, examples, precision, xla, reporter):
    """The largest batch size of which a training step takes at most SHARE of the memory that there is.

    A model is built and takes steps at small batch sizes. What they take grows by so much for each example. The result
    is a multiple of the first size that was tried, where it is larger, so that tasks have the shares of their rates,
    and at most as many examples as there are. Random numbers begin anew afterwards, as if the result had been given.

    Memory is the GPU's where there is one, and otherwise what the machine and the control groups of this process leave
    it on Linux. Elsewhere, as on macOS, it cannot be measured.

    Args:
        recipe: a Recipe.
        examples: `{task: EncodedExamples or LazyExamples}`.
        precision, xla: as in `train`.
        reporter: shows the result.

    Raises:
        UserError: if memory cannot be measured, or the smallest batch does not fit.
    """
    memory, most = memory_at_hand(), sum(len(part) for part in examples.values())
    steps = _try_batches(recipe, examples, precision, xla, memory, most)
    limit = memory.limit()
    size = _largest(steps, SHARE * limit, most)
    if size < len(examples):
        raise UserError(
            f"A batch holds an example of every task. Received: batch_size='auto', and {limit / 1e9:.1f} GB of memory, "
            f"too little. Train fewer tasks, or a smaller body."
        )
    keras.utils.set_random_seed(recipe.seed)
    what = ", all training examples" if size == most else ""
    gigabytes = f"{estimate(steps, size) / 1e9:.2f} of {limit / 1e9:.2f} GB"
    reporter.line(f"Batch size {size}{what}: a step is estimated to take {gigabytes}.")
    return size


def estimate(steps, size):
    """Bytes at the peak of a step of `size` examples, by the line through the last two of `steps`."""
    return steps[-1].peak + _slope(steps) * (size - steps[-1].size)


def _slope(steps):
    """Bytes that each further example takes."""
    first, last = steps[-2:]
    return max(last.own - first.own, 1) / (last.size - first.size)


def _try_batches(recipe, examples, precision, xla, memory, most):
    """Taken of steps at sizes that double, until one tells or there are no more examples.

    Three at least, for two to count: beside the first one there is not yet all that stays.
    """
    tasks, unit = recipe.mixture.tasks, _unit(recipe.mixture)
    recipe = dataclasses.replace(recipe, batch_size=unit, steps=2 * recipe.accumulation_steps)
    model, size = build_model(recipe, precision), unit
    steps: list[Taken] = []
    while len(steps) < 3 or (steps[-1].own - steps[-2].own < TELLING and size <= most):
        batch = MixedBatches(tasks, examples, recipe.mixture.shares(size), 1, recipe.seed)[0]
        if not steps:
            compile_model(model, recipe, batch, xla)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Gradients do not exist")  # of what label tasks alone leave out
            model.train_on_batch(*batch)  # which traces
        steps.append(Taken(size, *memory.taken(lambda batch=batch: model.train_on_batch(*batch))))
        size *= 2
    return steps


def _unit(mixture):
    """About SMALLEST examples, of which each task gets the share of its rate, if rates are not too far apart."""
    exact = math.ceil(sum(mixture.rates.values()) / min(mixture.rates.values()))
    return max(exact * math.ceil(SMALLEST / exact) if exact <= SMALLEST else SMALLEST, len(mixture.tasks))


def _largest(steps, bytes_, most):
    """The largest size whose estimate is at most `bytes_`, rounded down to multiples of the first one tried."""
    last = steps[-1]
    size = int(last.size + (bytes_ - last.peak) / _slope(steps))
    if size >= most:
        return most
    return size // steps[0].size * steps[0].size or size
