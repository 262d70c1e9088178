"""Going on with a run: exactly, after a kill at any moment; what may differ, and what not."""

import dataclasses
import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

import multimodel as mm
from multimodel.body import ConvBlock
from multimodel.training.checkpoints import Checkpoints
from multimodel.training.resume import check_differences
from multimodel.training.run import Run
from tests import tiny_recipe

TIMED = ("seconds", "steps_per_second", "memory_mb")
ROOT = pathlib.Path(__file__).parent.parent


def recipe(body=None, **changes):
    """The schedule of it does not depend on the number of steps."""
    made = dataclasses.replace(tiny_recipe.recipe(), schedule="exponential_tail", **changes)
    return dataclasses.replace(made, body=body) if body else made


def train(out, recipe=recipe, **options):
    return mm.train(recipe(), out, log_every=3, save_every=2, **options)


def newest(folder):
    return Checkpoints(folder / "checkpoints").newest(print)


def history(folder):
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in TIMED} for line in lines]


def equal_arrays(one, other):
    assert set(one.files) == set(other.files)
    for name in set(one.files) - {"progress"}:
        np.testing.assert_array_equal(one[name], other[name], name)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of 8 steps, and one of 4 that goes on to 8; between two lines of the history."""
    folder = tmp_path_factory.mktemp("runs")
    train(folder / "whole", steps=8)
    train(folder / "parts", steps=4)
    (folder / "parts" / "history.jsonl").open("a").write('{"step": 6, "half a line')
    train(folder / "parts", steps=8, resume=True)
    return folder


def test_a_run_that_went_on_equals_one_that_did_not_stop(runs):
    equal_arrays(newest(runs / "whole").arrays, newest(runs / "parts").arrays)
    first, *_ = history(runs / "parts")
    assert [line["step"] for line in history(runs / "whole")] == [3, 6, 8]
    assert first == history(runs / "whole")[0]
    results = [json.loads((runs / name / "metrics.json").read_text()) for name in ("whole", "parts")]
    assert results[0]["tasks"] == results[1]["tasks"]
    assert results[0]["usage"] == results[1]["usage"]


def test_a_run_does_not_go_back(runs):
    before = (runs / "whole" / "run.json").read_bytes()
    with pytest.raises(mm.UserError, match="Received: steps=5, after step 8. Give more steps"):
        train(runs / "whole", steps=5, resume=True)
    assert (runs / "whole" / "run.json").read_bytes() == before


def test_where_it_went_on_and_what_changed_is_recorded(runs):
    record = json.loads((runs / "parts" / "run.json").read_text())
    assert record["status"] == "finished"
    assert record["resumed_at"] == [4]
    assert record["changes"] == {"4": ["steps: 4 -> 8"]}


def test_a_finished_run_is_not_trained_again(runs, capsys):
    before = (runs / "whole" / "metrics.json").read_bytes()
    bundle = train(runs / "whole", steps=8, resume=True)
    assert "nothing has changed" in capsys.readouterr().out
    assert (runs / "whole" / "metrics.json").read_bytes() == before
    assert bundle.predict("upper", ["ab"]) == mm.load(runs / "whole").predict("upper", ["ab"])


def test_tasks_come_and_go(tmp_path):
    """Its own parts stay as they are while a task is away, and the others go on."""
    train(tmp_path, steps=2)
    start = newest(tmp_path).arrays
    train(tmp_path, steps=4, tasks=["upper"], resume=True)
    alone = newest(tmp_path)
    assert not any(name.startswith("image_input/") for name in alone.arrays.files)
    assert not np.array_equal(start["text_input/0"], alone.arrays["text_input/0"])
    train(tmp_path, steps=6, resume=True)
    assert history(tmp_path)[-1]["examples"].keys() == {"colours", "captions", "upper"}
    assert history(tmp_path)[-1]["examples"]["upper"] == 4 * 2 + 16 * 2 + 4 * 2
    assert newest(tmp_path).progress["position"]["places"]["colours"] == 16  # it began anew
    record = json.loads((tmp_path / "run.json").read_text())
    assert "task 'colours' is no longer trained" in record["changes"]["2"]
    assert "task 'colours' is new" in record["changes"]["4"]


def test_kills_at_random_moments(tmp_path):
    """Processes of their own, killed while training and while a checkpoint is written."""
    sizes = ["--steps", "30", "--save-every", "2", "--kills", "3", "--within", "6"]
    command = [sys.executable, "benchmarks/kills.py", "--recipe", "tests/tiny_recipe.py", *sizes]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["kills"] == 3
    assert found["while_writing"] >= 1
    assert found["exit_code"] == 0
    assert found["state"] and found["model"] and found["history"], found


def test_two_processes_do_not_share_a_folder(tmp_path):
    train(tmp_path, steps=1, tasks=["colours"])
    before = (tmp_path / "run.json").read_bytes()
    with Run(tmp_path).locked(), pytest.raises(mm.UserError, match="where another one trains"):
        train(tmp_path, steps=2, tasks=["colours"], resume=True)
    assert (tmp_path / "run.json").read_bytes() == before


def described(**changes):
    parts = {"body": {"config.dim": 16, "config.encoder.0.config.dropout": 0.1}, "text_input": {"config.size": 320}}
    of_a_task = {"labels": ["a", "b"], "input_shape": [8, 8, 3]}
    return {
        "seed": 1,
        "settings": {"steps": 4, "learning_rate": 1e-3},
        "tasks": {"t": of_a_task},
        "examples": {"t": 10},
        "rates": {"t": 1},
        "parts": parts,
    } | changes


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, []),
        ({"settings": {"steps": 9, "learning_rate": 1e-4}}, ["learning_rate: 0.001 -> 0.0001", "steps: 4 -> 9"]),
        ({"examples": {"t": 12}}, ["task 't', examples: 10 -> 12"]),
        ({"rates": {"t": 2}}, ["task 't', rate: 1 -> 2"]),
        ({"parts": {"body": {"config.dim": 16, "config.encoder.0.config.dropout": 0.3}}}, ["0.dropout: 0.1 -> 0.3"]),
        ({"parts": {}}, []),
    ],
)
def test_what_may_change_is_listed(changes, found):
    listed = check_differences(described(), described(**changes))
    assert len(listed) == len(found)
    for line, part in zip(listed, found, strict=True):
        assert part.rpartition("0.")[2] in line


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 2}, "seed: 1 -> 2; the order of the data"),
        ({"tasks": {"t": {"labels": ["b", "a"], "input_shape": [8, 8, 3]}}}, "would mean something else"),
        ({"tasks": {"t": {"labels": ["a", "b"], "input_shape": [9, 9, 3]}}}, r"\[8, 8, 3\] -> \[9, 9, 3\]"),
        ({"parts": {"body": {"config.dim": 32}}}, "dim: 16 -> 32; the weights so far do not fit"),
    ],
)
def test_what_may_not_change_is_refused(changes, message):
    with pytest.raises(mm.UserError, match=message):
        check_differences(described(), described(**changes))


def test_a_refused_change_costs_nothing(tmp_path):
    train(tmp_path, steps=1, tasks=["colours"])
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    other_body = mm.Body(16, mm.Body.tiny(16).encoder, [], [])
    for message, changed in {"seed: 1 -> 5": {"seed": 5}, "body, config": {"body": other_body}}.items():
        with pytest.raises(mm.UserError, match=message):
            train(tmp_path, lambda changed=changed: recipe(**changed), steps=3, tasks=["colours"], resume=True)
        assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


def test_dropout_may_change_in_a_real_run(tmp_path):
    def with_dropout(share):
        return recipe(body=mm.Body(16, [ConvBlock(16, dropout=share)], [], []))

    train(tmp_path, lambda: with_dropout(0.1), steps=1, tasks=["colours"])
    train(tmp_path, lambda: with_dropout(0.4), steps=2, tasks=["colours"], resume=True)
    changes = json.loads((tmp_path / "run.json").read_text())["changes"]["1"]
    assert "body, config.encoder.0.config.dropout: 0.1 -> 0.4" in changes


def test_resume_without_a_run_begins_one(tmp_path):
    train(tmp_path / "new", steps=1, tasks=["colours"], resume=True)
    assert json.loads((tmp_path / "new" / "run.json").read_text())["status"] == "finished"


def test_a_trained_folder_without_checkpoints_is_not_begun_anew(tmp_path):
    train(tmp_path, steps=1, tasks=["colours"])
    shutil.rmtree(tmp_path / "checkpoints")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    with pytest.raises(mm.UserError, match="no whole checkpoint"):
        train(tmp_path, steps=2, tasks=["colours"], resume=True)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


def test_resume_and_fresh_exclude_each_other(tmp_path):
    with pytest.raises(mm.UserError, match="Leave one out"):
        train(tmp_path, resume=True, fresh=True)
