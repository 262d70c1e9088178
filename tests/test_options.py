"""Options of a run for its numbers and its memory: precision, accumulation, averages, learned weights, remat."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest
from keras import ops

import multimodel as mm
from multimodel.body import MoEBlock
from multimodel.cli import run_command
from multimodel.training.adam import adam_of
from multimodel.training.build import rematerialised
from multimodel.training.prepare import resolve
from tests import tiny_recipe


def read(file):
    return json.loads(pathlib.Path(file).read_text())


def history(folder):
    return [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two tasks in float16, with gradients of two batches, averages, and learned loss weights."""
    folder, recipe = tmp_path_factory.mktemp("runs") / "all", tiny_recipe.recipe()
    bundle = mm.train(
        dataclasses.replace(recipe, loss_weights="uncertainty", accumulation_steps=2, ema=0.5, schedule="constant"),
        folder,
        tasks=["colours", "upper"],
        steps=60,
        log_every=20,
        learning_rate=5e-3,
        precision="mixed_float16",
    )
    return folder, bundle


def test_a_run_in_float16_learns(run):
    """With thirty updates; the same recipe in float32 knows all colours after sixty."""
    assert run[1].model.body.encoder[0].compute_dtype == "float16"
    assert read(run[0] / "metrics.json")["tasks"]["colours"]["accuracy"] == 1
    first, *_, last = history(run[0])
    assert last["loss"]["upper"] < 0.8 * first["loss"]["upper"]


def test_settings_are_recorded(run):
    settings = read(run[0] / "run.json")["settings"]
    expected = {"accumulation_steps": 2, "ema": 0.5, "schedule": "constant", "loss_weights": "uncertainty"}
    expected |= {"precision": "mixed_float16", "learning_rate": 5e-3, "remat": False}
    assert {name: settings[name] for name in expected} == expected


def test_the_averages_are_what_is_scored_and_saved(run):
    optimizer, again = adam_of(run[1].model), mm.load(run[0])
    assert optimizer.ema_momentum == 0.5
    weights = zip(run[1].model.trainable_variables, optimizer._model_variables_moving_average, strict=True)
    assert all((ops.convert_to_numpy(weight) == ops.convert_to_numpy(average)).all() for weight, average in weights)
    assert again.try_predict("upper", ["ab cd", ""]) == run[1].try_predict("upper", ["ab cd", ""])


def test_learned_weights_are_logged_and_loaded(run):
    """The last line has the weights of its step, the model their averages over a few updates."""
    last, again = history(run[0])[-1], mm.load(run[0])
    assert last["loss_weight"]["upper"] < 1 < last["loss_weight"]["colours"]  # of losses above 1 and below
    assert {task: weight.value() for task, weight in again.model.loss_weights().items()} == pytest.approx(
        last["loss_weight"], rel=0.01
    )
    assert read(run[0] / "run.json")["parameters"]["upper_loss_weight"] == 1


def test_rematerialisation_changes_nothing_but_rounding(tmp_path):
    losses = []
    for remat in (False, True):
        folder = tmp_path / str(remat)
        mm.train(tiny_recipe.recipe(), folder, tasks=["upper"], steps=3, log_every=1, remat=remat)
        losses.append([line["loss"]["upper"] for line in history(folder)])
        assert read(folder / "run.json")["settings"]["remat"] is remat
    np.testing.assert_allclose(*losses, rtol=1e-4)
    model = read(tmp_path / "True" / "model" / "architecture.json")
    assert model["body"]["config"]["encoder"][0]["config"]["remat"] is True


def test_a_recipe_is_left_as_it_was_by_rematerialisation():
    recipe = tiny_recipe.recipe()
    assert rematerialised(recipe).body.encoder[0].remat
    assert not recipe.body.encoder[0].remat
    experts = mm.Body(16, [MoEBlock(16, 2)], [], [])
    with pytest.raises(mm.UserError, match="remat=True for a body without any such"):
        rematerialised(dataclasses.replace(recipe, body=experts))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ema": 1.0}, "ema is between 0 and 0.999999. Received: ema=1.0"),
        ({"accumulation_steps": 0}, "accumulation_steps is between 1"),
        ({"accumulation_steps": 5, "steps": 4}, "Received: accumulation_steps=5, steps=4"),
        ({"batch_size": "large"}, "batch_size is between 1 and 1000000, or auto. Received: batch_size='large'"),
        ({"loss_weights": "uncertain"}, "Did you mean 'uncertainty'"),
    ],
)
def test_wrong_options_are_named(changes, message):
    with pytest.raises(mm.UserError, match=message):
        resolve(tiny_recipe.recipe(), None, changes)


def test_learned_weights_of_some_tasks():
    recipe = dataclasses.replace(tiny_recipe.recipe(), loss_weights="uncertainty")
    assert resolve(recipe, ["upper"], {}).loss_weights == "uncertainty"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--batch-size", "many"], "batch_size='many'"),
        (["--accumulate", "9", "--steps", "3"], "accumulation_steps=9, steps=3"),
        (["--ema", "2"], "ema=2.0"),
        (["--schedule", "constantly"], "Did you mean 'constant'?"),
        (["--learning-rate", "-1"], "learning_rate=-1.0"),
        (["--precision", "float16"], "precision='float16'"),
    ],
)
def test_flags_reach_the_recipe(flags, message, tmp_path, capsys):
    assert run_command(["train", tiny_recipe.__file__, "--out", str(tmp_path / "run"), *flags]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
