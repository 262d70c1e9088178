"""`train`: from a recipe to a run's folder."""

import shutil
import signal

import keras

from multimodel.backend import XLA, same_bits_each_time
from multimodel.errors import UserError, unknown
from multimodel.export.load import load
from multimodel.export.saved_model import export
from multimodel.tasks.examples import held_out_inputs
from multimodel.training.build import PRECISIONS, rematerialised
from multimodel.training.checkpoints import Checkpoints
from multimodel.training.console import Reporter
from multimodel.training.evaluate import evaluate
from multimodel.training.interrupts import Interrupts
from multimodel.training.loop import Loop
from multimodel.training.prepare import prepare, resolve, with_batch_size_of
from multimodel.training.report import write_report
from multimodel.training.resume import check_differences, describe
from multimodel.training.run import Run, settings_of, status
from multimodel.training.samples import write_samples
from multimodel.training.tensorboard_samples import write_tensorboard_samples
from multimodel.training.user_callbacks import user_callbacks


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
    remat=False,
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
        precision: "float32", "mixed_bfloat16", or "mixed_float16" with a dynamic scale of the loss.
        xla: whether the steps are compiled with XLA: "on", "off", or "auto", which is where it wins.
        remat: whether blocks compute their inside again for the gradient instead of keeping it: less memory, more time.
        verbose: also shows Keras' summary of the model, and where stdout is no terminal a line for each task.
        callbacks: a list of Keras callbacks, or a function without arguments that gives one and is called when all is
            ready to train. See `user_callbacks` for what they get.
        changes: fields of the recipe to replace: `steps`, `batch_size`, `seed`, ...

    Returns:
        A Bundle, as `multimodel.load(out)` gives it.

    Raises:
        UserError: if `out` holds a run or other files, a name is unknown, data cannot be read, there is no room on the
            disk, the run in `out` cannot go on with this recipe, a loss is no number time and again, or `callbacks`
            holds something else.
    """
    recipe = resolve(recipe, tasks, changes)
    for name, value in (("log_every", log_every), ("save_every", save_every)):
        if value is not None and value < 1:
            raise UserError(f"{name} is at least 1. Received: {name}={value}.")
    if precision not in PRECISIONS:
        raise unknown("precision", precision, PRECISIONS)
    if xla not in XLA:
        raise unknown("xla", xla, XLA)
    if not callable(callbacks):
        user_callbacks(callbacks)
    recipe = rematerialised(recipe) if remat else recipe
    run = Run(out or f"runs/{recipe.name}")
    run.claim(fresh, resume)
    reporter = Reporter(verbose=verbose)
    with run.locked(), Interrupts(reporter) as interrupts, same_bits_each_time(xla):
        checkpoints = Checkpoints(run.folder / "checkpoints")
        checkpoint = checkpoints.newest(reporter.warning) if resume else None
        if resume and checkpoint is None and run.was_trained():
            raise UserError(
                f"A run goes on from a checkpoint. Received: out={str(run.folder)!r}, which has been trained, and no "
                f"whole checkpoint. Train from the beginning with --fresh, or into another --out."
            )
        keras.utils.set_random_seed(recipe.seed)
        vocabularies = {}
        if checkpoint:
            vocabularies = checkpoint.vocabularies
            recipe = with_batch_size_of(recipe, checkpoint.progress["description"])
        recipe, batches, bundle, left_out = prepare(recipe, precision, xla, reporter, vocabularies)
        settings = settings_of(recipe, precision, xla, remat)
        description = describe(recipe, bundle.model, batches, settings)
        run.require_room(bundle.model)
        # Nothing is removed before this: data that cannot be read must not cost a former run.
        if checkpoint:
            changes = check_differences(checkpoint.progress["description"], description)
            if checkpoint.step > recipe.steps:
                raise UserError(
                    f"A run goes on to a later step. Received: steps={recipe.steps}, after step {checkpoint.step}. "
                    f"Give more steps."
                )
            if status(run.folder) == "finished" and not changes and (run.folder / "model").is_dir():
                reporter.line(f"{run.folder} is finished, and nothing has changed since.")
                return load(run.folder)
            callbacks = user_callbacks(callbacks)
            run.resume(recipe, bundle.model, settings, checkpoint.step, changes)
            reporter.resuming(checkpoint.step, changes)
        else:
            callbacks = user_callbacks(callbacks)
            run.start(recipe, bundle.model, settings)
        run.list_left_out(left_out)
        if verbose:
            bundle.model.summary(expand_nested=True, print_fn=reporter.line)
        interrupts.on_timeout = lambda: run.fail("stopped by SIGTERM amid a step; --resume goes on")
        loop = Loop(recipe, bundle, batches, description, run, checkpoints, interrupts, reporter)
        loop.watch(log_every, save_every, callbacks, checkpoint)
        try:
            with run.recording_failure(lambda error: _reason(error, loop.step)):
                try:
                    loop.fit()
                except Exception:  # of data that cannot be read, or of a user: it must not cost the steps so far
                    bundle.save(run.folder / "model")
                    raise
                finally:  # some rows are not read before their batch
                    run.list_left_out(
                        {name: left_out[name] | {"train": part.left_out} for name, part in batches.examples.items()}
                    )
                if interrupts.received == signal.SIGTERM:
                    raise SystemExit(128 + signal.SIGTERM)
                metrics = loop.finish()
                batches.examples.clear()  # scoring needs memory of its own, and TensorFlow keeps the batches themselves
                bundle.save(run.folder / "model")
                metrics["tasks"] = evaluate(
                    bundle, recipe.mixture.tasks, predictions=run.folder / "predictions", report=reporter.evaluating
                )
                keep_samples(bundle, recipe.mixture.tasks, run, loop.step, reporter)
                if recipe.export:
                    keep_export(bundle, recipe.mixture.tasks, run, reporter)
            by_user = f"stopped by the user after {loop.step} of {recipe.steps} steps"
            run.finish(metrics, by_user if interrupts.received else None)
        finally:
            report(run, reporter)
        reporter.finished(run.folder, metrics, recipe.steps)
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
        reporter.warning(f"not all samples could be written: {error}")


def keep_export(bundle, tasks, run, reporter):
    """Writes the run's SavedModel; one that fails its proof must not fail a run that is trained and scored."""
    reporter.line("Exporting ...")
    shutil.rmtree(run.folder / "export", ignore_errors=True)
    try:
        export(bundle, run.folder / "export", held_out_inputs(tasks))
    except (OSError, UserError) as error:
        reporter.warning(f"no export: {error}")


def report(run, reporter):
    """Writes the run's page, with the same care."""
    try:
        write_report(run.folder)
    except (OSError, UserError) as error:
        reporter.warning(f"no report.html: {error}")
