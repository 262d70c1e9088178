"""What a run writes and gives back, on either backend."""

import contextlib
import dataclasses
import io
import json
import pathlib

import keras
import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

import multimodel as mm
from multimodel.shipped import load_recipe
from multimodel.training.evaluate import evaluate
from multimodel.training.tensorboard import scalars
from tests import tiny_recipe


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        bundle = mm.train(load_recipe(tiny_recipe.__file__), folder, steps=4, log_every=3)
    return folder, bundle, printed.getvalue()


def read(file):
    return json.loads(pathlib.Path(file).read_text())


def test_run_json(run):
    record = read(run[0] / "run.json")
    assert record["status"] == "finished"
    assert record["recipe"] == "tiny"
    assert record["seed"] == 1
    assert record["settings"]["steps"] == 4
    assert record["settings"]["rates"] == {"colours": 2, "captions": 1, "upper": 1}
    assert record["tasks"]["colours"]["labels"] == ["red", "green", "blue"]
    assert record["versions"]["keras"] == keras.__version__
    parts = dict(record["parameters"])
    assert parts.pop("total") == sum(parts.values()) == run[1].model.count_params()


def test_history(run):
    lines = [json.loads(line) for line in (run[0] / "history.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [3, 4]
    assert lines[-1]["examples"] == {"colours": 32, "captions": 16, "upper": 16}
    assert all(value > 0 for line in lines for value in line["loss"].values())
    for block, tasks in (
        ("encoder_experts", ["colours", "captions", "upper"]),
        ("decoder_experts", ["captions", "upper"]),
    ):
        for line in lines:
            assert list(line["expert_load"][block]) == tasks
            for shares in line["expert_load"][block].values():
                assert len(shares) == 2
                assert sum(shares) == pytest.approx(1, abs=1e-3)
    assert lines[0]["learning_rate"] > lines[1]["learning_rate"] > 0
    assert all(100 < line["memory_mb"] <= read(run[0] / "metrics.json")["peak_memory_mb"] for line in lines)
    assert all(line["steps_per_second"] > 0 for line in lines)


def test_tensorboard_shows_what_history_holds(run):
    found = EventAccumulator(str(run[0] / "tensorboard")).Reload()
    for line in map(json.loads, (run[0] / "history.jsonl").read_text().splitlines()):
        for tag, value in scalars(line).items():
            (event,) = [event for event in found.Tensors(tag) if event.step == line["step"]]
            assert make_ndarray(event.tensor_proto) == pytest.approx(value)
    assert {"loss/upper", "expert_load/decoder_experts"} < set(found.Tags()["tensors"])


def test_metrics_and_predictions(run):
    metrics = read(run[0] / "metrics.json")
    assert metrics["step"] == 4
    assert metrics["parameters"] == run[1].model.count_params()
    assert list(metrics["tasks"]["captions"]) == ["split", "examples", "exact", "wer", "baseline"]
    for task, scores in metrics["tasks"].items():
        lines = [json.loads(line) for line in (run[0] / f"predictions/{task}.jsonl").read_text().splitlines()]
        assert len(lines) == scores["examples"] == 20
        headline = next(iter(scores["baseline"]))
        assert scores[headline] == pytest.approx(np.mean([line["output"] == line["target"] for line in lines]))


def test_samples_and_report(run):
    pictures = 0
    for task in ("colours", "captions", "upper"):
        lines = [json.loads(line) for line in (run[0] / f"samples/{task}.jsonl").read_text().splitlines()]
        predictions = (run[0] / f"predictions/{task}.jsonl").read_text()
        assert 4 <= len(lines) <= 8
        pictures += sum(line["picture"] is not None for line in lines)
        for line in lines:
            assert json.dumps(line["output"], ensure_ascii=False) in predictions
            assert line["right"] == (line["output"] == line["target"])
            assert bool(line["attention"]) == (task != "colours")
            if task != "colours":
                text = "".join(line["attention"]["pieces"]).removesuffix("</s>")
                assert "<0x" in text or text == line["output"]
    assert list((run[0] / "tensorboard").iterdir())
    page = (run[0] / "report.html").read_text(encoding="utf-8")
    assert "finished" in page
    assert page.count("data:image/png") == pictures > 8


def test_a_loaded_run_predicts_the_same(run):
    again = mm.load(run[0])
    assert again.tasks == run[1].tasks
    image = np.full((8, 8, 3), (255, 0, 0), "uint8")
    for task, values in {"colours": [image], "captions": [image], "upper": ["ab cd", "", "🦒"]}.items():
        assert again.try_predict(task, values) == run[1].try_predict(task, values)


def test_a_model_folder_holds_no_pickle_and_no_code(run):
    names = {file.name for file in (run[0] / "model").iterdir()}
    assert names == {"architecture.json", "tasks.json", "model.weights.h5", "text.vocabulary"}


def test_evaluate_equals_the_run(run):
    tasks = {
        name: dataclasses.replace(task, inputs=run[1].inputs[name], targets=run[1].targets[name])
        for name, task in tiny_recipe.recipe().mixture.tasks.items()
    }
    assert evaluate(run[1], tasks) == read(run[0] / "metrics.json")["tasks"]
    assert evaluate(run[1], tasks, limit=5)["upper"]["examples"] == 5


def test_a_run_is_not_overwritten_unasked(run):
    before = (run[0] / "metrics.json").read_bytes()
    with pytest.raises(mm.UserError, match="Add --resume to go on with it, --fresh"):
        mm.train(tiny_recipe.recipe(), run[0])
    assert (run[0] / "metrics.json").read_bytes() == before


def test_the_shares_are_printed_at_the_start(run):
    start = run[2].split("Training")[0]
    assert "50.0%" in start
    assert start.count("25.0%") == 2
