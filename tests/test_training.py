"""A run from a recipe: its folder, its scores, its order, and how it ends early."""

import dataclasses
import importlib
import json
import os
import pathlib
import signal
import threading
import time

import keras
import numpy as np
import pytest

import multimodel as mm
from multimodel.training.losses import SmoothedCrossEntropy
from multimodel.training.metrics import most_frequent, score
from multimodel.training.prepare import resolve
from tests import tiny_recipe


def read(file):
    return json.loads(pathlib.Path(file).read_text())


def test_one_seed_one_history(tmp_path):
    def losses(folder, seed):
        mm.train(tiny_recipe.recipe(), tmp_path / folder, tasks=["colours"], steps=3, log_every=1, seed=seed)
        lines = (tmp_path / folder / "history.jsonl").read_text().splitlines()
        return [json.loads(line)["loss"] for line in lines]

    first = losses("a", 3)
    assert losses("b", 3) == first
    assert losses("c", 4) != first


def test_fresh_replaces_a_run_and_nothing_else(tmp_path):
    mm.train(tiny_recipe.recipe(), tmp_path / "run", steps=1, tasks=["colours"])
    (tmp_path / "run" / "notes.txt").write_text("mine")
    (tmp_path / "run" / "predictions" / "former.jsonl").write_text("{}")
    mm.train(tiny_recipe.recipe(), tmp_path / "run", steps=2, tasks=["colours"], fresh=True)
    assert read(tmp_path / "run" / "metrics.json")["step"] == 2
    assert len((tmp_path / "run" / "history.jsonl").read_text().splitlines()) == 1
    assert [file.name for file in (tmp_path / "run" / "predictions").iterdir()] == ["colours.jsonl"]
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("x")
    with pytest.raises(mm.UserError, match="holds other files"):
        mm.train(tiny_recipe.recipe(), tmp_path, fresh=True)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


def test_an_unwritable_folder_is_named_before_training(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(mm.UserError, match="Choose another --out"):
        mm.train(tiny_recipe.recipe(), tmp_path / "file" / "run")


def test_bad_data_is_named_and_costs_no_former_run(tmp_path):
    mm.train(tiny_recipe.recipe(), tmp_path / "run", steps=1, tasks=["colours"])
    before = (tmp_path / "run" / "metrics.json").read_bytes()
    recipe = tiny_recipe.recipe()
    recipe.mixture.tasks["upper"].source._columns["train"]["text"][5] = 7
    recipe.mixture.tasks["upper"].source._columns["train"]["text"][6] = 7  # one of a hundred is left out
    with pytest.raises(mm.UserError, match="Task 'upper', field 'text', example 5: .* Received: 2 unusable of 100"):
        mm.train(recipe, tmp_path / "run", fresh=True)
    assert (tmp_path / "run" / "metrics.json").read_bytes() == before
    with pytest.raises(mm.UserError, match="example 5"):
        mm.train(recipe, tmp_path / "new")
    assert not list((tmp_path / "new").iterdir())


def test_a_run_that_breaks_says_so(tmp_path, monkeypatch):
    def broken(*arguments, **options):
        raise RuntimeError("out of luck")

    monkeypatch.setattr(importlib.import_module("multimodel.training.train"), "evaluate", broken)
    with pytest.raises(RuntimeError):
        mm.train(tiny_recipe.recipe(), tmp_path / "run", steps=1, tasks=["colours"])
    record = read(tmp_path / "run" / "run.json")
    assert record["status"] == "failed"
    assert record["reason"] == "RuntimeError: out of luck"


def test_ctrl_c_keeps_and_scores_the_weights(tmp_path, capsys):
    """A real SIGINT, sent once the first line of history is there."""
    history = tmp_path / "run" / "history.jsonl"

    handler = signal.getsignal(signal.SIGINT)

    def interrupt():
        while not history.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    mm.train(tiny_recipe.recipe(), tmp_path / "run", tasks=["colours"], steps=100_000, log_every=1)
    thread.join()
    metrics, record = read(tmp_path / "run" / "metrics.json"), read(tmp_path / "run" / "run.json")
    assert 0 < metrics["step"] < 100_000
    assert 0 <= metrics["tasks"]["colours"]["accuracy"] <= 1
    assert record["status"] == "failed"
    assert "stopped by the user" in record["reason"]
    assert "the weights so far are kept and scored" in capsys.readouterr().out
    assert mm.load(tmp_path / "run").predict("colours", [np.zeros((8, 8, 3), "uint8")])
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_tiny_recipe_learns(tmp_path):
    """Sixty steps are enough for the colours of held-out pictures."""
    mm.train(tiny_recipe.recipe(), tmp_path / "run", tasks=["colours"], steps=60)
    scores = read(tmp_path / "run" / "metrics.json")["tasks"]["colours"]
    assert scores["accuracy"] == 1
    assert scores["baseline"]["accuracy"] < 0.7


def test_a_way_to_compile_that_there_is_not(tmp_path):
    with pytest.raises(mm.UserError, match="Did you mean 'auto'"):
        mm.train(tiny_recipe.recipe(), tmp_path / "run", xla="aut")
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="a setting of TensorFlow")
@pytest.mark.parametrize(("xla", "ordered"), [("auto", True), ("on", False)])
def test_sums_are_in_order_while_training_alone_and_leave_xla_on(tmp_path, xla, ordered):
    from tensorflow.python.framework.config import is_op_determinism_enabled

    seen = []
    look = keras.callbacks.LambdaCallback(on_train_begin=lambda logs: seen.append(is_op_determinism_enabled()))
    bundle = mm.train(tiny_recipe.recipe(), tmp_path, tasks=["colours"], steps=1, xla=xla, callbacks=[look])
    assert seen == [ordered]
    assert not is_op_determinism_enabled()
    assert bundle.model.jit_compile == (xla == "on")


def test_lazy_experts_train(tmp_path):
    bundle = mm.train(tiny_recipe.recipe(), tmp_path / "run", tasks=["upper"], steps=2, lazy_experts=True)
    assert bundle.model.optimizer.lazy_experts


def test_mixed_bfloat16_trains_and_loads(tmp_path):
    bundle = mm.train(tiny_recipe.recipe(), tmp_path / "run", tasks=["upper"], steps=2, precision="mixed_bfloat16")
    assert keras.config.dtype_policy().name == "float32"
    assert bundle.model.body.encoder[0].compute_dtype == "bfloat16"
    assert mm.load(tmp_path / "run").predict("upper", ["ab"]) == bundle.predict("upper", ["ab"])


@pytest.mark.parametrize(
    ("tasks", "changes", "message"),
    [
        (["colurs"], {}, "Did you mean 'colours'"),
        (None, {"batch_size": 2}, "batch_size of at least 3"),
        (None, {"steps": 0}, "steps is between 1"),
        (None, {"step": 3}, "Did you mean 'steps'"),
        (None, {"learning_rate": -1.0}, "learning_rate is between 0"),
    ],
)
def test_settings_are_checked(tasks, changes, message):
    with pytest.raises(mm.UserError, match=message):
        resolve(tiny_recipe.recipe(), tasks, changes)


def test_a_net_that_no_task_uses_is_named():
    with pytest.raises(mm.UserError, match=r"net='image_inputs'. Did you mean 'image_input'"):
        dataclasses.replace(tiny_recipe.recipe(), nets={"image_inputs": None})


def test_an_unknown_metric_is_named():
    recipe = tiny_recipe.recipe()
    task = dataclasses.replace(recipe.mixture.tasks["upper"], metrics=("blue",))
    with pytest.raises(mm.UserError, match="Did you mean 'bleu'"):
        resolve(dataclasses.replace(recipe, mixture=mm.Mixture({task: 1}), nets={}), None, {})


def test_metrics_by_hand():
    outputs, targets = ["a b c d e", "x", ""], ["a b c d e", "y", "z z"]
    scores = score(("exact", "accuracy", "wer", "cer"), outputs, targets)
    assert scores == {"exact": 0.33333, "accuracy": 0.33333, "wer": 0.375, "cer": round(4 / 13, 5)}
    assert score(("bleu", "chrf"), ["a b c d e"], ["a b c d e"]) == {"bleu": 100, "chrf": 100}
    assert most_frequent(["b", "a", "b", "a", "c"]) == "a"


def test_smoothed_cross_entropy_by_hand():
    logits, targets = np.log([[[0.7, 0.2, 0.1]]]).astype("float32"), np.array([[0]])
    assert float(SmoothedCrossEntropy()(targets, logits)) == pytest.approx(-np.log(0.7), rel=1e-5)
    expected = -(0.9 * np.log(0.7) + 0.05 * np.log(0.2) + 0.05 * np.log(0.1))
    assert float(SmoothedCrossEntropy(0.1)(targets, logits)) == pytest.approx(expected, rel=1e-5)


def test_padding_weighs_nothing_in_the_loss():
    logits = np.random.default_rng(0).normal(size=(2, 3, 5)).astype("float32")
    targets, weights = np.array([[1, 2, 0], [3, 0, 0]]), np.array([[1.0, 1, 0], [1, 0, 0]])
    loss = SmoothedCrossEntropy(0.1)
    parts = [float(loss(targets[i : i + 1, :n], logits[i : i + 1, :n])) * n for i, n in ((0, 2), (1, 1))]
    assert float(loss(targets, logits, sample_weight=weights)) == pytest.approx(sum(parts) / 3, rel=1e-5)
