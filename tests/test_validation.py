"""Scores while training: the best weights, early stopping, and what they are measured by."""

import dataclasses
import json
import math

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import multimodel as mm
from multimodel.tasks import ArraySource
from multimodel.training import evaluate, validation
from multimodel.training.checkpoints import Checkpoints
from multimodel.training.validation import Validation, goodness, monitored
from tests import tiny_recipe


def recipe(**changes):
    made = tiny_recipe.recipe()
    pictures = {"train": tiny_recipe.squares(60, 0), "test": tiny_recipe.squares(20, 1)}
    source = ArraySource(pictures | {"validation": tiny_recipe.squares(20, 2)})
    colours = dataclasses.replace(made.mixture.tasks["colours"], source=source)
    upper = made.mixture.tasks["upper"]  # without a validation split
    return dataclasses.replace(made, mixture=mm.Mixture({colours: 2, upper: 1}), **changes)


def scored(monkeypatch, accuracies):
    """Lets validation find these accuracies, one after the other."""
    left = list(accuracies)

    def scores(bundle, tasks, *arguments):
        assert list(tasks) == ["colours"]
        results = evaluate.evaluate(bundle, tasks, *arguments)
        assert results["colours"]["split"] == "validation"
        return {"colours": results["colours"] | {"accuracy": left.pop(0)}}

    monkeypatch.setattr(validation, "evaluate", scores)


def lines_of(folder):
    return [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]


def test_the_best_weights_are_kept_and_training_stops_early(tmp_path, monkeypatch, capsys):
    scored(monkeypatch, [0.5, 0.9, 0.7, 0.9])
    made = recipe(validate_every=2, patience=2, steps=100)
    bundle = mm.train(made, tmp_path, log_every=100, save_every=100)
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert (metrics["step"], metrics["best_step"]) == (8, 4)
    assert json.loads((tmp_path / "run.json").read_text())["status"] == "finished"
    found = [line for line in lines_of(tmp_path) if "validation" in line]
    assert [line["step"] for line in found] == [2, 4, 6, 8]
    assert found[1]["validation"] == {"colours": {"accuracy": 0.9}}
    events = EventAccumulator(str(tmp_path / "tensorboard"), {"tensors": 0}).Reload()
    assert [event.step for event in events.Tensors("validation/colours/accuracy")] == [2, 4, 6, 8]
    best = Checkpoints(tmp_path / "checkpoints").best()
    assert best.step == 4
    kept = bundle.model.body.variables
    for number, variable in enumerate(kept):
        np.testing.assert_array_equal(np.asarray(variable), best.arrays[f"body/{number}"])
    assert "after step 4, the best on validation" in capsys.readouterr().out


def test_validation_changes_no_number_and_goes_on_where_it_stood(tmp_path, monkeypatch):
    """Weights of a run that is validated equal those of one that is not; waiting goes on after a stop."""
    constant = {"schedule": "exponential_tail"}
    mm.train(recipe(**constant), tmp_path / "without", steps=6, save_every=6)
    scored(monkeypatch, [0.9, 0.5])
    options = {"validate_every": 2, "patience": 2}
    mm.train(recipe(**constant, **options), tmp_path / "with", steps=4)
    scored(monkeypatch, [0.5])
    mm.train(recipe(**constant, **options), tmp_path / "with", steps=50, resume=True)
    metrics = json.loads((tmp_path / "with" / "metrics.json").read_text())
    assert (metrics["step"], metrics["best_step"]) == (6, 2)
    states = [Checkpoints(tmp_path / name / "checkpoints").newest(print).arrays for name in ("without", "with")]
    for name in set(states[0].files) - {"progress"}:
        if not name.startswith(("metrics/", "load/")):
            np.testing.assert_array_equal(states[0][name], states[1][name], name)


def test_an_early_stop_outlives_a_kill_and_another_monitor_begins_anew():
    """As a checkpoint has it that was written when patience was at its end."""
    history = type("History", (), {"step": 8})()
    made = Validation(recipe(validate_every=2, patience=2), None, history, None)
    made.restore({"best": 0.9, "waited": 2})
    assert made.exhausted
    made.begin_anew()
    assert made.state() == {"best": None, "waited": 0}
    assert not made.exhausted


def test_what_it_is_measured_by():
    scores = {"a": {"exact": 0.5, "bleu": 80.0}, "b": {"wer": 0.25}, "c": {"log_perplexity": math.log(2)}}
    assert monitored("mean", scores) == pytest.approx((0.5 + 0.75 + 0.5) / 3)
    assert monitored("a/bleu", scores) == 0.8
    assert goodness("wer", 3.2) == 0


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: recipe(validate_every=2, monitor="colours/acuracy"), "Did you mean 'colours/accuracy'"),
        (lambda: recipe(validate_every=2, monitor="upper/exact"), "Unknown monitor"),
        (lambda: dataclasses.replace(tiny_recipe.recipe(), validate_every=2), "split named 'validation'"),
    ],
)
def test_mistakes_are_found_before_training(tmp_path, made, message):
    mm.train(recipe(), tmp_path, steps=1, tasks=["colours"])
    before = (tmp_path / "run.json").read_bytes()
    with pytest.raises(mm.UserError, match=message):
        mm.train(made(), tmp_path, fresh=True)
    assert (tmp_path / "run.json").read_bytes() == before
