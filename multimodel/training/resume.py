"""Going on where a run stopped: what is saved and when, and what may differ afterwards."""

import json
import time

import keras
import numpy as np

from multimodel.backend import sync_state
from multimodel.errors import UserError
from multimodel.tasks.features import vocabularies_of
from multimodel.training.checkpoints import Checkpoint, NotFiniteError, state_of
from multimodel.training.recovery import FaultError

SHARE = 0.01  # of the time that checkpoints may take, where there is no `save_every`
SECONDS = 30  # between two of them at least
ADJUSTABLE = ("dropout", "remat", "balance", "switch_loss", "z_loss", "capacity_factor", "dtype", "name")


class Saver(keras.callbacks.Callback):
    """Writes checkpoints while `fit` runs, and restores one when it begins.

    Args:
        checkpoints: the Checkpoints.
        bundle: the Bundle that is trained.
        description: of the run, as `describe` gives it.
        parts: `{name: callback}` of those whose `state` belongs to a checkpoint: `history`, `guard`, and `validation`,
            which may be None.
        batches: the MixedBatches.
        every: steps from one checkpoint to the next; if None, as often as costs SHARE of the time at most.
        reporter: is told what fails.

    Attributes:
        seconds: spent on checkpoints.
    """

    def __init__(self, checkpoints, bundle, description, parts, batches, every, reporter):
        super().__init__()
        self._description = description
        self._checkpoints, self._bundle = checkpoints, bundle
        self._batches, self._every, self._reporter = batches, every, reporter
        self._history, self._validation = parts["history"], parts["validation"]
        self._parts = {name: part for name, part in parts.items() if part}
        self._restored: Checkpoint | None = None
        self._saved_step = -1
        self.seconds, self._cost, self._last = 0.0, 0.0, time.monotonic()

    def restore(self, checkpoint):
        """Gives all parts of the run the state of a Checkpoint."""
        before, now = checkpoint.progress["description"], self._description
        same_tasks = before["tasks"].keys() == now["tasks"].keys()
        for name, part in self._parts.items():
            if name in checkpoint.progress:
                part.restore(checkpoint.progress[name])
        if self._validation and (not same_tasks or before["settings"]["monitor"] != now["settings"]["monitor"]):
            self._validation.begin_anew()
            self._checkpoints.forget_best()
        self._batches.start_at(checkpoint.progress["position"])
        self.seconds = checkpoint.progress["saving"]
        if not same_tasks:
            self._history.steps_since_reset = 0  # the means of losses begin anew
        self._restored = checkpoint
        self._apply(checkpoint)

    def _apply(self, checkpoint):
        sync_state(self._bundle.model)
        state = state_of(self._bundle.model)
        if not self._history.steps_since_reset:
            state = {name: value for name, value in state.items() if not name.startswith(("metrics/", "load/"))}
        checkpoint.restore(state)

    def on_epoch_begin(self, epoch, logs=None):
        if self._restored:
            self._apply(self._restored)  # again: Keras has just reset the means of losses
            self._restored = None
        else:
            self.save()

    def on_train_batch_end(self, batch, logs=None):
        improved = self._validation is not None and self._validation.improved
        last = self._history.step == len(self._batches) or self.model.stop_training
        if last or improved or self._due():
            self.save(improved)

    def on_train_end(self, logs=None):
        if self._saved_step != self._history.step:  # a user's callback stopped it
            self.save()

    def _due(self):
        if self._every:
            return self._history.step % self._every == 0
        return time.monotonic() - self._last > max(SECONDS, self._cost / SHARE)

    def save(self, best=False):
        """Writes a checkpoint; if that fails, says so and leaves those that are there.

        Raises:
            FaultError: if a weight is no number.
        """
        begin = time.monotonic()
        progress = {name: part.state() for name, part in self._parts.items()}
        progress["position"] = self._batches.position(self._history.step)
        progress |= {"description": self._description, "saving": self.seconds}
        features = [*self._bundle.inputs.values(), *self._bundle.targets.values()]
        vocabularies = {
            f"vocabulary/{one.name}": np.frombuffer(one.save(), "uint8") for one in vocabularies_of(features)
        }
        sync_state(self._bundle.model)
        try:
            self._checkpoints.save(self._history.step, state_of(self._bundle.model) | vocabularies, progress, best)
            self._saved_step = self._history.step
        except NotFiniteError:
            raise FaultError(self._history.step - 1, None, float("nan")) from None
        except OSError as error:
            if best:
                self._validation.forget()
            self._reporter.warning(
                f"No checkpoint at step {self._history.step}: {error.strerror or error}. Training goes on, the last "
                f"good one stays, and the next is tried in its turn."
            )
        self._last = time.monotonic()
        self._cost = self._last - begin
        self.seconds += self._cost
        self._history.pause(self._cost)


def describe(recipe, model, batches, settings):
    """What a run is made of, in JSON values: what `check_differences` compares."""
    config = model.get_config()
    parts = {"body": config["body"]} | config["nets"]
    return json.loads(
        json.dumps(
            {
                "seed": recipe.seed,
                "settings": settings,
                "rates": recipe.mixture.rates,
                "tasks": {name: signature.to_json() for name, signature in model.signatures.items()},
                "examples": {name: len(examples) for name, examples in batches.examples.items()},
                "parts": {name: dict(_leaves(part)) for name, part in parts.items()},
            }
        )
    )


def check_differences(before, after):
    """What is not as it was when the run stopped, a line each.

    Settings, data, rates, tasks and their search may change. The seed, what a task reads and writes, and the shape of
    the parts of the model may not.

    Args:
        before, after: as `describe` gives them.

    Raises:
        UserError: for a change that the weights do not bear; the message names it.
    """
    if before["seed"] != after["seed"]:
        raise _refusal(f"seed: {before['seed']} -> {after['seed']}", "the order of the data follows from it")
    changes = [change for _, change in _changes(before["settings"], after["settings"])]
    changes += [f"task {name!r} is no longer trained" for name in before["tasks"] if name not in after["tasks"]]
    changes += [f"task {name!r} is new" for name in after["tasks"] if name not in before["tasks"]]
    for name in before["tasks"].keys() & after["tasks"].keys():
        for field, change in _changes(before["tasks"][name], after["tasks"][name]):
            if field != "search":
                raise _refusal(f"task {name!r}, {change}", "what was learned would mean something else")
            changes.append(f"task {name!r}, {change}")
        numbers = [{"examples": of["examples"][name], "rate": of["rates"][name]} for of in (before, after)]
        changes += [f"task {name!r}, {change}" for _, change in _changes(*numbers)]
    for name in before["parts"].keys() & after["parts"].keys():
        for path, change in _changes(before["parts"][name], after["parts"][name]):
            if path.rpartition(".")[2] not in ADJUSTABLE:
                raise _refusal(f"{name}, {change}", "the weights so far do not fit")
            changes.append(f"{name}, {change}")
    return sorted(changes)


def load_vocabularies(tasks, vocabularies):
    """Fills the vocabularies of tasks with those of a checkpoint, `{name: bytes}`; others are left to be trained."""
    for vocabulary in vocabularies_of([feature for task in tasks.values() for feature in (task.inputs, task.targets)]):
        if vocabulary.name in vocabularies:
            vocabulary.load(vocabularies[vocabulary.name])


def _refusal(change, reason):
    return UserError(
        f"A run goes on with the model and the data order that it began with. Received: {change}; {reason}. "
        f"Undo the change, or train from the beginning with --fresh, or into another --out."
    )


def _changes(before, after):
    """`(name, "name: before -> after")` of values that differ between two dicts."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return [(name, f"{name}: {before.get(name)} -> {after.get(name)}") for name in names]


def _leaves(config, path=""):
    """Yields `(path, value)` of a layer's configuration; names that Keras counts up are left out."""
    if isinstance(config, dict):
        for name, value in config.items():
            if name not in ("name", "build_config"):
                yield from _leaves(value, f"{path}.{name}" if path else name)
    elif isinstance(config, list) and any(isinstance(value, dict) for value in config):
        for index, value in enumerate(config):
            yield from _leaves(value, f"{path}.{index}")
    else:
        yield path, config
