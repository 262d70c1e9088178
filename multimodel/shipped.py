"""Recipes by name or file, and runs by their recipe."""

import dataclasses
import importlib
import pathlib
import pkgutil
import sys
import types

import recipes
from multimodel.errors import UserError, unknown
from multimodel.export.load import load_run
from multimodel.export.quantized import quantize
from multimodel.export.saved_model import export
from multimodel.tasks.check import check_path, check_tasks
from multimodel.tasks.examples import held_out_inputs, require_data
from multimodel.training.evaluate import evaluate
from multimodel.training.recipe import Recipe
from multimodel.training.run import read_run

SCORED = 500  # held-out examples of a task, to tell what int8 costs


def shipped_names():
    return sorted(module.name for module in pkgutil.iter_modules(recipes.__path__))


def load_recipe(name_or_path):
    """The Recipe of a shipped name, or of a `.py` file with a function `recipe()`.

    Raises:
        UserError: if there is none, or the file fails; the message names the line.
    """
    names = shipped_names()
    if name_or_path in names:
        recipe = importlib.import_module(f"recipes.{name_or_path}").recipe()
        return dataclasses.replace(recipe, origin=name_or_path)
    path = pathlib.Path(name_or_path)
    if path.suffix != ".py":
        raise unknown("recipe", name_or_path, names)
    if not path.is_file():
        raise UserError(f"A recipe file exists. Received: recipe={name_or_path!r}. Check the path.")
    return dataclasses.replace(_recipe_of_file(path), origin=str(path.resolve()))


def _recipe_of_file(path):
    module = types.ModuleType(path.stem)
    module.__file__ = str(path)
    try:
        sys.path.insert(0, str(path.parent.resolve()))  # as Python does for a script, so that it finds its neighbours
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), module.__dict__)
        recipe = module.recipe() if hasattr(module, "recipe") else None
    except UserError:
        raise
    except Exception as error:
        line = _line_in(error, path)
        raise UserError(f"{path}{line}: {type(error).__name__}: {error}") from error
    if not isinstance(recipe, Recipe):
        raise UserError(
            f"A recipe file has a function recipe() that returns a Recipe. Received: {path}, "
            f"{'where it returns ' + type(recipe).__name__ if hasattr(module, 'recipe') else 'without one'}."
        )
    return recipe


def _line_in(error, path):
    """Where in the recipe file an error came from, as `, line N`."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f", line {error.lineno}"
    lines, step = [], error.__traceback__
    while step:
        if step.tb_frame.f_code.co_filename == str(path):
            lines.append(step.tb_lineno)
        step = step.tb_next
    return f", line {lines[-1]}" if lines else ""


def describe_recipes():
    """A readable list of the shipped recipes."""
    paragraphs = []
    for name in shipped_names():
        recipe = load_recipe(name)
        lines = [f"{name}: {recipe.description}", f"  data: {recipe.data}", f"  time: {recipe.time}"]
        for task in recipe.mixture.tasks.values():
            expected = recipe.scores.get(task.name)
            score = f", {task.metrics[0]} {expected}" if expected is not None else ""
            lines.append(f"  {task.name}: {task.inputs.modality} -> {task.targets.modality}{score}")
        paragraphs.append("\n".join(lines))
    return "\n\n".join(paragraphs)


def check_data(recipe_or_path, tasks=None):
    """The report of `check_tasks` or `check_path`.

    Args:
        recipe_or_path: a shipped recipe, a `.py` file with one, or data.
        tasks: names of the recipe's tasks to check; all if None.

    Raises:
        UserError: if there is no such recipe, path or task, or data is missing.
    """
    if recipe_or_path not in shipped_names() and not recipe_or_path.endswith(".py"):
        return check_path(recipe_or_path)
    known = load_recipe(recipe_or_path).mixture.tasks
    for name in tasks or ():
        if name not in known:
            raise unknown("task", name, known)
    return check_tasks({name: known[name] for name in tasks or known})


def evaluate_run(folder, recipe=None, tasks=None, split="test", limit=None, report=lambda name: None):
    """Scores a run on the data of its recipe.

    Args:
        folder: of the run.
        recipe: its recipe's name or file, where `run.json` does not lead to it.
        tasks: names of the tasks to score; all if None.
        split, limit, report: as for `evaluate`.

    Raises:
        UserError: if run, recipe, task or split cannot be found.
    """
    bundle, chosen = _with_data(folder, recipe, tasks)
    return evaluate(bundle, chosen, split, limit, report=report)


def export_run(folder, out, recipe=None, tasks=None, search=None, int8=False):
    """Exports a run, proven on the test split of its recipe's data.

    Args:
        folder, recipe: as for `evaluate_run`.
        out: folder of the export.
        tasks: names of the tasks to export; all if None.
        search: as for `export`.
        int8: whether weights are quantised; both models are then scored on SCORED examples of each task.

    Returns:
        What `export` returns, and `{task: (first metric, score before int8, score after)}`, empty without it.

    Raises:
        UserError: if run, recipe or task cannot be found, or the folder cannot be written.
        DisagreementError: as `export` raises it.
    """
    bundle, chosen = _with_data(folder, recipe, tasks)
    losses = {}
    if int8:
        before = evaluate(bundle, chosen, limit=SCORED)
        bundle, _ = _with_data(folder, recipe, tasks)
        quantize(bundle)
        after = evaluate(bundle, chosen, limit=SCORED)
        firsts = {name: task.metrics[0] for name, task in chosen.items()}
        losses = {name: (first, before[name][first], after[name][first]) for name, first in firsts.items()}
    return (*export(bundle, out, held_out_inputs(chosen), search), losses)


def _with_data(folder, recipe, tasks):
    """A run's Bundle, and `{name: Task}` with its features and its recipe's data."""
    origin = recipe or read_run(folder).get("recipe_file")
    if not origin:
        raise UserError(
            f"A run is scored and exported on its recipe's data. Received: {str(folder)!r}, trained from Python. "
            f"Add --recipe FILE.py."
        )
    known = load_recipe(origin).mixture.tasks  # first: it may define classes that the model is made of
    bundle = load_run(folder)
    for name in tasks or ():
        if name not in bundle.tasks:
            raise unknown("task", name, bundle.tasks)
    chosen = {}
    for name in tasks or bundle.tasks:
        if name not in known:
            raise unknown("task", name, known)
        # The run's features, whose vocabularies are trained, in place of the recipe's.
        chosen[name] = dataclasses.replace(known[name], inputs=bundle.inputs[name], targets=bundle.targets[name])
    require_data(chosen)
    return bundle, chosen
