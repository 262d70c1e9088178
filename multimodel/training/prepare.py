"""From a recipe and its changes to data, vocabularies and a model that is ready for `fit`."""

import dataclasses

from multimodel.errors import unknown
from multimodel.export.bundle import Bundle
from multimodel.tasks.batches import MixedBatches
from multimodel.tasks.encoded import training_examples
from multimodel.tasks.examples import encoded_parts, require_data, train_vocabularies
from multimodel.tasks.mixture import Epochs
from multimodel.training.batch_size import AUTO, fitting_batch_size
from multimodel.training.build import build_model, compile_model
from multimodel.training.memory_at_hand import memory_at_hand
from multimodel.training.metrics import check_metrics
from multimodel.training.resume import load_vocabularies
from multimodel.training.validation import check_validation

CHECKED = 10_000  # held-out examples of a task that are read before training


def resolve(recipe, tasks, changes):
    """The recipe with some of its tasks and some fields changed, checked."""
    settings = [field.name for field in dataclasses.fields(recipe)]
    for name in changes:
        if name not in settings:
            raise unknown("setting", name, settings)
    recipe = dataclasses.replace(recipe, **{name: value for name, value in changes.items() if value is not None})
    if tasks is not None:
        for name in tasks:
            if name not in recipe.mixture.tasks:
                raise unknown("task", name, recipe.mixture.tasks)
        mixture = recipe.mixture.only(tasks)
        used = mixture.net_names()
        nets = {name: net for name, net in recipe.nets.items() if name in used}
        weights = recipe.loss_weights
        if not isinstance(weights, str):
            weights = {name: weight for name, weight in weights.items() if name in mixture.tasks}
        recipe = dataclasses.replace(recipe, mixture=mixture, nets=nets, loss_weights=weights)
    if recipe.batch_size == AUTO:
        memory_at_hand()
    else:
        recipe.mixture.require_room(recipe.batch_size)
    for task in recipe.mixture.tasks.values():
        check_metrics(task.metrics)
    check_validation(recipe)
    return recipe


def with_batch_size_of(recipe, description):
    """The recipe with the batch size that a run found to fit, where it says "auto" and goes on with that run."""
    if recipe.batch_size != AUTO:
        return recipe
    return dataclasses.replace(recipe, batch_size=description["settings"]["batch_size"])


def prepare(recipe, precision, xla, reporter, vocabularies=None):
    """Data, vocabularies and the built model of a recipe.

    Args:
        recipe, precision, xla: as for `train`.
        reporter: shows the mixture.
        vocabularies: `{name: bytes}` of those that are trained already.

    Returns:
        `(recipe, batches, bundle, left_out)`, the recipe with a number of steps, and the last one
        `{task: {split: list of LeftOut}}`.
    """
    tasks = recipe.mixture.tasks
    require_data(tasks)
    load_vocabularies(tasks, vocabularies or {})
    train_vocabularies(tasks)
    examples = {name: training_examples(task) for name, task in tasks.items()}
    left_out = {name: {"train": examples[name].left_out} for name in tasks}
    for name, task in tasks.items():  # what cannot be scored is found before training, not after
        left_out[name]["test"] = [one for part in encoded_parts(task, "test", CHECKED) for one in part.left_out]
    if recipe.batch_size == AUTO:
        recipe = dataclasses.replace(recipe, batch_size=fitting_batch_size(recipe, examples, precision, xla, reporter))
    shares = recipe.mixture.shares(recipe.batch_size)
    if isinstance(recipe.steps, Epochs):
        steps = recipe.steps.steps({name: len(part) for name, part in examples.items()}, shares)
        recipe = dataclasses.replace(recipe, steps=steps)
    reporter.mixture(tasks, shares, examples)
    batches = MixedBatches(tasks, examples, shares, recipe.steps, recipe.seed)
    model = build_model(recipe, precision)
    compile_model(model, recipe, batches[0], xla)
    inputs, targets = ({name: getattr(task, role) for name, task in tasks.items()} for role in ("inputs", "targets"))
    return recipe, batches, Bundle(model, inputs, targets), left_out
