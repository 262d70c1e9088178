"""The training loop: from a recipe to a run's folder."""

import dataclasses
import time
import warnings

import keras

from multimodel.backend import XLA
from multimodel.errors import UserError, unknown
from multimodel.export.bundle import Bundle
from multimodel.tasks.batches import MixedBatches
from multimodel.tasks.encoded import training_examples
from multimodel.tasks.examples import encoded_parts, require_data, train_vocabularies
from multimodel.tasks.mixture import Epochs
from multimodel.training.batch_size import AUTO, fitting_batch_size
from multimodel.training.build import PRECISIONS, build_model, compile_model, rematerialised
from multimodel.training.callbacks import History, StopOnInterrupt
from multimodel.training.console import Reporter
from multimodel.training.ema import keep_averages
from multimodel.training.evaluate import evaluate
from multimodel.training.memory import memory_at_hand
from multimodel.training.metrics import check_metrics
from multimodel.training.run import Run

CHECKED = 10_000  # held-out examples of a task that are read before training


def train(
    recipe,
    out=None,
    *,
    tasks=None,
    fresh=False,
    log_every=50,
    precision="float32",
    xla="auto",
    remat=False,
    verbose=False,
    **changes,
):
    """Trains a recipe, scores it on held-out data, and writes a run's folder.

    Ctrl-C ends training after the step at hand; the weights so far are kept and scored.

    Args:
        recipe: a Recipe.
        out: the run's folder; `runs/NAME` if None.
        tasks: names of the recipe's tasks to train; all if None.
        fresh: replaces a run that is in `out`.
        log_every: steps from one line of `history.jsonl` to the next.
        precision: "float32", "mixed_bfloat16", or "mixed_float16" with a dynamic scale of the loss.
        xla: whether the steps are compiled with XLA: "on", "off", or "auto", which is where it wins.
        remat: whether blocks compute their inside again for the gradient instead of keeping it: less memory, more time.
        verbose: also shows Keras' summary of the model.
        changes: fields of the recipe to replace: `steps`, `batch_size`, `seed`, ...

    Returns:
        A Bundle, as `multimodel.load(out)` gives it.

    Raises:
        UserError: if `out` holds a run or other files, a name is unknown, or data cannot be read.
    """
    recipe = resolve(recipe, tasks, changes)
    if log_every < 1:
        raise UserError(f"log_every is at least 1. Received: log_every={log_every}.")
    if precision not in PRECISIONS:
        raise unknown("precision", precision, PRECISIONS)
    if xla not in XLA:
        raise unknown("xla", xla, XLA)
    recipe = rematerialised(recipe) if remat else recipe
    run = Run(out or f"runs/{recipe.name}")
    run.claim(fresh)
    reporter = Reporter()
    keras.utils.set_random_seed(recipe.seed)
    recipe, batches, bundle, left_out = prepare(recipe, precision, xla, reporter)
    # Not before: data that cannot be read must not cost a former run.
    run.start(recipe, bundle.model, precision, xla, remat)
    run.list_left_out(left_out)
    if verbose:
        bundle.model.summary(expand_nested=True, print_fn=reporter.line)
    try:
        try:
            step, seconds, usage = fit(bundle.model, batches, recipe, run, reporter, log_every)
        except UserError:  # an example that cannot be read must not cost the steps before it
            bundle.save(run.folder / "model")
            raise
        finally:  # some rows are not read before their batch
            run.list_left_out(
                {name: left_out[name] | {"train": part.left_out} for name, part in batches.examples.items()}
            )
        batches.examples.clear()  # scoring needs memory of its own, and TensorFlow keeps the batches themselves
        bundle.save(run.folder / "model")
        scores = evaluate(
            bundle, recipe.mixture.tasks, predictions=run.folder / "predictions", report=reporter.evaluating
        )
    except BaseException as error:
        run.fail(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
        raise
    run.finish(recipe, step, seconds, bundle.model.count_params(), scores, usage)
    reporter.finished(run, step, recipe.steps, seconds, scores, usage)
    return bundle


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
    return recipe


def prepare(recipe, precision, xla, reporter):
    """Data, vocabularies and the built model of a recipe.

    Returns:
        `(recipe, batches, bundle, left_out)`, the recipe with a number of steps, and the last one
        `{task: {split: list of LeftOut}}`.
    """
    tasks = recipe.mixture.tasks
    require_data(tasks)
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


def fit(model, batches, recipe, run, reporter, log_every):
    """Runs Keras `fit`: the steps done, the seconds they took, and what they used of each task.

    The model is left with the averages of its weights, where they are kept.

    Raises:
        UserError: if an example cannot be read that was not read beforehand.
    """
    history = History(run.folder / "history.jsonl", model, batches, log_every, reporter)
    start = time.monotonic()
    with StopOnInterrupt(reporter) as interrupt, warnings.catch_warnings():
        # Label tasks alone leave mixer and decoder without gradients, and are right to.
        warnings.filterwarnings("ignore", "Gradients do not exist")
        try:
            model.fit(
                batches.dataset(),
                steps_per_epoch=len(batches),
                shuffle=False,
                verbose=0,
                callbacks=[history, interrupt.callback],
            )
        except Exception:
            if batches.error is None:
                raise
            if keras.backend.backend() == "jax":
                model.jax_state_sync()
            raise batches.error from None
        finally:
            keep_averages(model)
    return history.step, time.monotonic() - start, history.usage()
