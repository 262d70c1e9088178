"""The training loop: from a recipe to a run's folder."""

import dataclasses
import signal
import warnings

import keras

from multimodel.backend import XLA
from multimodel.errors import UserError, unknown
from multimodel.export.bundle import Bundle, load
from multimodel.tasks.batches import MixedBatches
from multimodel.tasks.encoded import training_examples
from multimodel.tasks.examples import encoded_parts, require_data, train_vocabularies
from multimodel.tasks.mixture import Epochs
from multimodel.training.build import build_model, compile_model
from multimodel.training.checkpoints import Checkpoints, state_of
from multimodel.training.console import Reporter
from multimodel.training.evaluate import evaluate
from multimodel.training.history import History
from multimodel.training.interrupts import Interrupts
from multimodel.training.metrics import check_metrics
from multimodel.training.recovery import FaultError, Guard, Recovery
from multimodel.training.report import write_report
from multimodel.training.resume import Saver, check_differences, describe, load_vocabularies
from multimodel.training.run import Run, settings_of, status
from multimodel.training.samples import write_samples
from multimodel.training.tensorboard_samples import write_tensorboard_samples
from multimodel.training.validation import Validation, check_validation

CHECKED = 10_000  # held-out examples of a task that are read before training


def train(
    recipe,
    out=None,
    *,
    tasks=None,
    fresh=False,
    resume=False,
    log_every=50,
    save_every=None,
    precision="float32",
    xla="auto",
    verbose=False,
    callbacks=(),
    **changes,
):
    """Trains a recipe, scores it on held-out data, and writes a run's folder.

    Ctrl-C ends training after the step at hand; the weights so far are kept and scored. SIGTERM ends it too, with a
    checkpoint and exit code 143. Either way, and after a crash, `resume` goes on as if nothing had happened: on one
    machine's CPU, weights and history are those of a run that was not interrupted, bit for bit.

    Args:
        recipe: a Recipe.
        out: the run's folder; `runs/NAME` if None.
        tasks: names of the recipe's tasks to train; all if None.
        fresh: replaces a run that is in `out`.
        resume: goes on with the run that is in `out`, if there is one.
        log_every: steps from one line of `history.jsonl` to the next.
        save_every: steps from one checkpoint to the next; if None, as often as costs 1 % of the time at most.
        precision: "float32" or "mixed_bfloat16".
        xla: whether the steps are compiled with XLA: "on", "off", or "auto", which is where it wins.
        verbose: also shows Keras' summary of the model, and where stdout is no terminal a line for each task.
        callbacks: a list of Keras callbacks, or a function without arguments that gives one and is called when all is
            ready to train. See `user_callbacks` for what they get.
        changes: fields of the recipe to replace: `steps`, `batch_size`, `seed`, ...

    Returns:
        A Bundle, as `multimodel.load(out)` gives it.

    Raises:
        UserError: if `out` holds a run or other files, a name is unknown, data cannot be read, there is no room on the
            disk, the run in `out` cannot go on with this recipe, or a loss is no number time and again.
    """
    recipe = resolve(recipe, tasks, changes)
    for name, value in (("log_every", log_every), ("save_every", save_every)):
        if value is not None and value < 1:
            raise UserError(f"{name} is at least 1. Received: {name}={value}.")
    if precision not in ("float32", "mixed_bfloat16"):
        raise unknown("precision", precision, ("float32", "mixed_bfloat16"))
    if xla not in XLA:
        raise unknown("xla", xla, XLA)
    if not callable(callbacks):
        user_callbacks(callbacks)
    run = Run(out or f"runs/{recipe.name}")
    run.claim(fresh, resume)
    reporter = Reporter()
    with run.locked(), Interrupts(reporter) as interrupts:
        checkpoints = Checkpoints(run.folder / "checkpoints")
        checkpoint = checkpoints.newest(reporter.warning) if resume else None
        keras.utils.set_random_seed(recipe.seed)
        vocabularies = checkpoint.vocabularies if checkpoint else {}
        recipe, batches, bundle, left_out = prepare(recipe, precision, xla, reporter, vocabularies)
        settings = settings_of(recipe, precision, xla)
        description = describe(recipe, bundle.model, batches, settings)
        run.require_room(bundle.model)
        # Nothing is removed before this: data that cannot be read must not cost a former run.
        if checkpoint:
            step, changes = checkpoint.step, check_differences(checkpoint.progress["description"], description)
            if status(run.folder) == "finished" and not changes:
                reporter.line(f"{run.folder} is finished, and nothing has changed since.")
                return load(run.folder)
            run.resume(recipe, bundle.model, settings, step, changes)
            reporter.resuming(step, changes)
        else:
            run.start(recipe, bundle.model, settings)
        run.list_left_out(left_out)
        if verbose:
            bundle.model.summary(expand_nested=True, print_fn=reporter.line)
        history = History(run.folder / "history.jsonl", bundle.model, batches, log_every, reporter)
        validation = Validation(recipe, bundle, history, reporter) if recipe.validate_every else None
        guard = Guard(bundle.model.signatures, history)
        saver = Saver(checkpoints, bundle, description, history, guard, validation, batches, save_every, reporter)
        if checkpoint:
            saver.restore(checkpoint)
        callbacks = [one for one in (guard, history, validation, interrupts.callback, saver) if one]
        recovery = Recovery(run, checkpoints, bundle.model, batches, saver, reporter)
        try:
            with run.recording_failure(lambda error: _reason(error, history.step)):
                try:
                    fit(bundle.model, batches, callbacks, history, recovery, interrupts)
                except UserError:  # an example that cannot be read must not cost the steps before it
                    bundle.save(run.folder / "model")
                    raise
                finally:  # some rows are not read before their batch
                    run.list_left_out(
                        {name: left_out[name] | {"train": part.left_out} for name, part in batches.examples.items()}
                    )
                if interrupts.received == signal.SIGTERM:
                    raise SystemExit(128 + signal.SIGTERM)
                best = take_final_weights(bundle.model, checkpoints if validation else None)
                usage = history.usage()
                batches.examples.clear()  # scoring needs memory of its own, and TensorFlow keeps the batches themselves
                bundle.save(run.folder / "model")
                scores = evaluate(
                    bundle, recipe.mixture.tasks, predictions=run.folder / "predictions", report=reporter.evaluating
                )
                keep_samples(bundle, recipe.mixture.tasks, run, history.step, reporter)
            metrics = {
                "recipe": recipe.name,
                "step": history.step,
                "seconds": round(history.seconds, 1),
                "checkpoint_seconds": round(saver.seconds, 2),
                "parameters": bundle.model.count_params(),
                "tasks": scores,
                "usage": usage,
            }
            stopped = interrupts.received and f"stopped by the user after {history.step} of {recipe.steps} steps"
            run.finish(metrics | ({"best_step": best} if best else {}), stopped)
        finally:
            report(run, reporter)
        reporter.finished(run.folder, metrics, recipe.steps, best)
    return bundle


def _reason(error, step):
    """Why a run ended early, in a line for `run.json`."""
    if isinstance(error, SystemExit):
        return f"stopped by SIGTERM after step {step}; --resume goes on"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def keep_samples(bundle, tasks, run, step, reporter):
    """Writes examples of outputs; a full disk must not fail a run that is trained and scored."""
    try:
        write_samples(bundle, tasks, run.folder)
        write_tensorboard_samples(run.folder, step)
    except OSError as error:
        reporter.line(f"Not all samples could be written: {error}")


def report(run, reporter):
    """Writes the run's page, with the same care."""
    try:
        write_report(run.folder)
    except (OSError, UserError) as error:
        reporter.line(f"No report.html: {error}")


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
        weights = {name: weight for name, weight in recipe.loss_weights.items() if name in mixture.tasks}
        recipe = dataclasses.replace(recipe, mixture=mixture, nets=nets, loss_weights=weights)
    recipe.mixture.require_room(recipe.batch_size)
    for task in recipe.mixture.tasks.values():
        check_metrics(task.metrics)
    check_validation(recipe)
    return recipe


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
    shares = recipe.mixture.shares(recipe.batch_size)
    load_vocabularies(tasks, vocabularies or {})
    train_vocabularies(tasks)
    examples = {name: training_examples(task) for name, task in tasks.items()}
    left_out = {name: {"train": examples[name].left_out} for name in tasks}
    for name, task in tasks.items():  # what cannot be scored is found before training, not after
        left_out[name]["test"] = [one for part in encoded_parts(task, "test", CHECKED) for one in part.left_out]
    if isinstance(recipe.steps, Epochs):
        steps = recipe.steps.steps({name: len(part) for name, part in examples.items()}, shares)
        recipe = dataclasses.replace(recipe, steps=steps)
    reporter.mixture(tasks, shares, examples)
    batches = MixedBatches(tasks, examples, shares, recipe.steps, recipe.seed)
    model = build_model(recipe, precision)
    compile_model(model, recipe, batches[0], xla)
    inputs, targets = ({name: getattr(task, role) for name, task in tasks.items()} for role in ("inputs", "targets"))
    return recipe, batches, Bundle(model, inputs, targets), left_out


def fit(model, batches, callbacks, history, recovery, interrupts):
    """Runs Keras `fit` to the last step, again after each fault.

    Raises:
        UserError: if an example cannot be read that was not read beforehand, or faults do not end.
    """
    with warnings.catch_warnings():
        # Label tasks alone leave mixer and decoder without gradients, and are right to.
        warnings.filterwarnings("ignore", "Gradients do not exist")
        while history.step < len(batches):
            interrupts.fitting = True
            try:
                model.fit(
                    batches.dataset(history.step),
                    steps_per_epoch=len(batches) - history.step,
                    shuffle=False,
                    verbose=0,
                    callbacks=callbacks,
                )
                return
            except FaultError as fault:
                recovery.recover(fault)
            except Exception:
                if batches.error is None:
                    raise
                raise batches.error from None
            finally:
                interrupts.fitting = False


def take_final_weights(model, checkpoints):
    """Gives the model the weights that are kept: the best ones if there are `checkpoints`, and averages where Adam
    has them. Returns the step of the best ones, or None."""
    best = checkpoints.best() if checkpoints else None
    if best:
        best.restore(state_of(model))
    model.optimizer.finalize_variable_values(model.trainable_variables)
    return best and best.step
