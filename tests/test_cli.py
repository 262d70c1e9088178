"""The command line: what it prints, and what a user's mistakes give."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import keras
import numpy as np
import PIL.Image
import pytest

from multimodel.cli import run_command
from tests import tiny_recipe


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    assert run_command(["train", tiny_recipe.__file__, "--out", str(folder), "--steps", "2"]) == 0
    return str(folder)


@pytest.fixture
def red(tmp_path):
    path = tmp_path / "red.png"
    PIL.Image.fromarray(np.full((8, 8, 3), (255, 0, 0), "uint8")).save(path)
    return str(path)


UNREGISTERED = """
from multimodel import Body
from multimodel.body import ConvBlock
from tests import tiny_recipe
import dataclasses

class Mine(ConvBlock):
    pass

def recipe():
    return dataclasses.replace(tiny_recipe.recipe(), body=Body(16, [Mine(16)], [], []))
"""


def one_line(capsys):
    """The error, which must be the only line on stderr, and nothing on stdout."""
    captured = capsys.readouterr()
    lines = captured.err.strip().splitlines()
    assert len(lines) == 1, captured.err
    assert lines[0].startswith("Error: ")
    return lines[0]


def mistakes(run, tmp_path):
    (tmp_path / "broken.py").write_text("def recipe():\n    return 1 / 0\n")
    (tmp_path / "syntax.py").write_text("def recipe(:\n")
    (tmp_path / "none.py").write_text("x = 1\n")
    (tmp_path / "other.py").write_text("def recipe():\n    return 3\n")
    (tmp_path / "block.py").write_text(UNREGISTERED)
    new = ["--out", str(tmp_path / "new")]
    return {
        "unknown command": (["trian"], "Did you mean 'train'"),
        "no command": ([], "Missing command"),
        "unknown recipe": (["train", "quikstart"], "Did you mean 'quickstart'"),
        "recipe unlike any": (["train", "zzz"], "Choose one of: paper, quickstart"),
        "missing recipe file": (["train", "nowhere.py"], "A recipe file exists. Received: recipe='nowhere.py'"),
        "recipe that fails": (["train", str(tmp_path / "broken.py")], "broken.py, line 2: ZeroDivisionError"),
        "recipe that is no Python": (["train", str(tmp_path / "syntax.py")], "syntax.py, line 1: SyntaxError"),
        "file without recipe": (["train", str(tmp_path / "none.py")], "without one"),
        "recipe() of another type": (["train", str(tmp_path / "other.py")], "returns int"),
        "block of a class that Keras does not know": (
            ["train", str(tmp_path / "block.py"), *new],
            "Register its classes with keras.saving.register_keras_serializable",
        ),
        "unknown flag": (["train", "quickstart", "--stepz", "3"], "--steps"),
        "no number": (["train", "quickstart", "--steps", "many"], "--steps"),
        "no steps": (["train", tiny_recipe.__file__, "--steps", "0", *new], "steps is between 1"),
        "unknown task in train": (["train", tiny_recipe.__file__, "--tasks", "colour", *new], "Did you mean 'colours'"),
        "no task in train": (["train", tiny_recipe.__file__, "--tasks", "", *new], "mixture has tasks"),
        "unknown precision": (["train", tiny_recipe.__file__, "--precision", "bfloat16", *new], "'mixed_bfloat16'"),
        "small batch": (["train", tiny_recipe.__file__, "--batch-size", "2", *new], "batch_size of at least 3"),
        "a run is there": (["train", tiny_recipe.__file__, "--out", run], "Add --resume to go on with it, --fresh"),
        "no run": (["evaluate", str(tmp_path)], "without a readable one"),
        "no run in report": (["report", str(tmp_path)], "without a readable one"),
        "unknown task in evaluate": (["evaluate", run, "--tasks", "uper"], "Did you mean 'upper'"),
        "unknown split": (["evaluate", run, "--split", "tests"], "Did you mean 'test'"),
        "unknown task in predict": (["predict", run, "colour", "x"], "Did you mean 'colours'"),
        "no run in predict": (["predict", str(tmp_path / "no"), "colours", "x"], "without model/"),
        "missing argument": (["predict", run], "TASK"),
    }


def test_a_mistake_is_one_line_and_exit_code_2(run, tmp_path, capsys):
    capsys.readouterr()
    for name, (arguments, message) in mistakes(run, tmp_path).items():
        assert run_command(arguments) == 2, name
        assert message in one_line(capsys), name
    assert not list((tmp_path / "new").iterdir())


def test_a_block_of_ones_own_trains_and_is_scored(tmp_path, capsys):
    file = tmp_path / "own.py"
    decorator = 'import keras\n@keras.saving.register_keras_serializable("tests")\nclass Mine'
    file.write_text(UNREGISTERED.replace("class Mine", decorator))
    out = str(tmp_path / "run")
    assert run_command(["train", str(file), "--out", out, "--steps", "1", "--tasks", "colours"]) == 0
    keras.saving.get_custom_objects().pop("tests>Mine")
    assert run_command(["evaluate", out, "--json"]) == 0
    keras.saving.get_custom_objects().pop("tests>Mine")
    capsys.readouterr()
    assert run_command(["predict", out, "colours", "x.png"]) == 2
    assert "import its module" in one_line(capsys)


@pytest.mark.parametrize("file", ["model.weights.h5", "architecture.json", "tasks.json", "text.vocabulary"])
def test_a_damaged_model_is_one_line(run, tmp_path, capsys, file):
    shutil.copytree(run, tmp_path / "run")
    damaged = tmp_path / "run" / "model" / file
    damaged.write_bytes(damaged.read_bytes()[:40])
    capsys.readouterr()
    assert run_command(["predict", str(tmp_path / "run"), "upper", "ab"]) == 2
    assert "whole" in one_line(capsys)


def test_a_function_that_gives_a_recipe_is_used_as_it_is(tmp_path):
    script = "import dataclasses\nfrom tests import tiny_recipe\nfrom multimodel import main\n"
    script += "main(lambda: dataclasses.replace(tiny_recipe.recipe(), name='other', steps=1))"
    (tmp_path / "script.py").write_text(script)
    root = pathlib.Path(__file__).parent.parent
    flags = ["--tasks", "colours", "--out", str(tmp_path / "run")]
    result = command(str(tmp_path / "script.py"), *flags, cwd=root, path=root)
    assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "run" / "run.json").read_text())["recipe"] == "other"


def test_bytes_that_are_no_text_keep_nobody_from_an_answer(run):
    result = subprocess.run(
        [sys.executable, "-m", "multimodel", "predict", run, "upper", "--json"],
        input=b"ab\n\xff\xfe\ncd\n",
        capture_output=True,
        check=False,
    )
    assert result.returncode == 3, result.stderr
    outputs = [json.loads(line)["output"] for line in result.stdout.splitlines()]
    assert [output is None for output in outputs] == [False, True, False]


def test_recipes(capsys):
    assert run_command(["recipes"]) == 0
    text = capsys.readouterr().out
    for part in (
        "quickstart",
        "animals: image -> label",
        "speech: audio -> text",
        "python_ast: text -> text",
        "minutes",
    ):
        assert part in text


def test_evaluate_prints_the_tasks_object(run, capsys):
    capsys.readouterr()
    assert run_command(["evaluate", run, "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores == json.loads((pathlib.Path(run) / "metrics.json").read_text())["tasks"]
    assert run_command(["evaluate", run, "--tasks", "upper", "--limit", "3"]) == 0
    assert "3 test" in capsys.readouterr().out


def test_predict_text(run, capsys):
    capsys.readouterr()
    assert run_command(["predict", run, "upper", "ab", "", "🦒", "x" * 100_000]) == 0
    assert len(capsys.readouterr().out.split("\n")) == 5


def test_predict_json(run, red, capsys):
    capsys.readouterr()
    assert run_command(["predict", run, "colours", red, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["input"] == red
    assert record["output"] in tiny_recipe.COLOURS
    assert record["score"] <= 0


def test_predict_answers_the_readable_inputs(run, red, tmp_path, capsys):
    empty, text = tmp_path / "empty.png", tmp_path / "text.png"
    empty.write_bytes(b"")
    text.write_text("no picture")
    capsys.readouterr()
    inputs = [red, str(tmp_path / "missing.png"), str(empty), str(text), red]
    assert run_command(["predict", run, "colours", *inputs]) == 3
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 2
    errors = captured.err.splitlines()
    assert len(errors) == 3
    for line, path, reason in zip(
        errors, inputs[1:4], ("No such file", "empty image file", "not a readable"), strict=True
    ):
        assert path in line
        assert reason in line
    assert run_command(["predict", run, "colours", *inputs, "--json"]) == 3
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["output"] is None for record in records] == [False, True, True, True, False]
    assert "empty" in records[2]["error"]


def command(*arguments, stdin=None, cwd=None, path=""):
    environment = os.environ | {"PYTHONPATH": str(path)}
    program = [sys.executable, *arguments]
    return subprocess.run(program, input=stdin, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def test_predict_reads_stdin_and_python_m_works(run):
    result = command("-m", "multimodel", "predict", run, "upper", stdin="ab\n\ncd ef\n")
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) == 3
    assert result.stderr == ""


def test_a_recipe_file_takes_the_flags_of_train(tmp_path):
    root = pathlib.Path(__file__).parent.parent
    flags = ["--steps", "1", "--tasks", "upper", "--out", str(tmp_path / "run"), "--seed", "7", "--log-every", "1"]
    result = command(str(root / "tests" / "tiny_recipe.py"), *flags, cwd=root, path=root)
    assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "run" / "run.json").read_text())["seed"] == 7
    again = command(str(root / "tests" / "tiny_recipe.py"), *flags, cwd=root, path=root)
    assert again.returncode == 2
    assert "Traceback" not in again.stderr


@pytest.mark.parametrize("name", ["recipes", "train", "evaluate", "predict"])
def test_help_has_an_example(name, capsys):
    assert run_command([name, "--help"]) == 0
    assert f"Example: multimodel {name}" in capsys.readouterr().out
