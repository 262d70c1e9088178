"""Every benchmark once, at a size that takes seconds."""

import importlib
import json
import pathlib
import sys

import keras
import pytest

BENCHMARKS = pathlib.Path(__file__).parent.parent / "benchmarks"
TINY = ["--dim", "8", "--experts", "2", "--batch", "2", "--inputs", "6", "--targets", "5", "--vocab", "20"]


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs a benchmark in this process, with some of its constants changed, and gives its JSON lines."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setenv("KERAS_BACKEND", keras.backend.backend())

    def runs(name, *arguments, **constants):
        module = importlib.import_module(name)
        for constant, value in constants.items():
            monkeypatch.setattr(module, constant, value)
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        module.main()
        return [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]

    yield runs
    keras.config.set_dtype_policy("float32")


def test_train_step(run):
    (line,) = run("train_step", *TINY, "--steps", "1", "--precision", "mixed_bfloat16")
    assert line["peer"] == "multimodel tensorflow"
    assert line["dtype"] == "bfloat16"
    assert line["parameters"] > 10_000
    assert all(line[key] > 0 for key in ("first_step_s", "step_ms", "tokens_per_s", "matrix_gflops"))


def test_the_work_of_a_step_is_counted(run):
    """By hand: a model of the default sizes does 61.5 GFLOP."""
    workload = importlib.import_module("workload")
    options = workload.parser("").parse_args([])
    assert workload.gflop_per_step(options) == pytest.approx(61.5, abs=0.05)


def test_the_rival_does_the_same_work(run):
    pytest.importorskip("torch", reason="the rival needs torch, which `make bench` installs beside the project")
    (theirs,) = run("torch_train_step", *TINY, "--steps", "1")
    (ours,) = run("train_step", *TINY, "--steps", "1")
    assert theirs.keys() == ours.keys()
    assert theirs["gflop_per_step"] == ours["gflop_per_step"]


def test_first_step(run, monkeypatch):
    workload = importlib.import_module("workload")
    tiny = dict(zip((name.removeprefix("--") for name in TINY[::2]), map(int, TINY[1::2]), strict=True))
    monkeypatch.setattr(workload, "OPTIONS", workload.OPTIONS | tiny)
    lines = run("first_step", "--experts", "2")
    assert [line["what"] for line in lines] == ["text", "quickstart"]
    assert all(0 < line["fit_one_step_s"] <= line["first_step_s"] for line in lines)


def test_a_large_table(run, monkeypatch, tmp_path):
    monkeypatch.setenv("MULTIMODEL_CACHE", str(tmp_path))  # which the script sets to a place of its own
    (line,) = run("large_table", "--rows", "64", "--size", "8", "--batch", "8")
    assert len(line["memory_mb"]) >= 4
    assert line["encoded_mb"] == 0
    assert line["examples_per_s"] > 0


def test_experts(run):
    (line,) = run("experts", "--rounds", "2", SIZES=((8, 4, 32),))
    assert line["experts"] == 4
    assert line["ratio"] > 0


def test_decode(run):
    *lines, ratios = run("decode", "--rounds", "1", LENGTHS=(2, 4), BATCHES=(1, 2))
    assert len(lines) == 4
    assert set(ratios) == {"what", "4_to_2_tokens", "throughput_2_to_1"}


def test_input(run):
    (line,) = run("input", "--steps", "3")
    assert line["fit_s"] >= line["sum_of_steps_s"] > 0
    assert line["batches_per_s_alone"] > line["batches_per_s_in_training"]


def test_scaling(run):
    (line,) = run("scaling", "--rounds", "1", "--steps", "2", "--tasks", "numbers_en_de,numbers_de_en")
    assert set(line["single_ms"]) == {"numbers_en_de", "numbers_de_en"}


def test_serve(run, quickstart):
    *tasks, everything = run("serve", str(quickstart[0] / "export"), "--clients", "2", "--seconds", "3")
    assert len(tasks) == 6
    assert everything["errors"] == 0
    assert everything["requests"] == sum(line["requests"] for line in tasks) > 6


def test_the_table_of_ratios(run, monkeypatch, capsys):
    """From lines that are made up, since `make bench` takes half an hour."""
    compare = importlib.import_module("compare")
    made_up = {
        "train_step.py": [{"tokens_per_s": 300, "first_step_s": 9.0, "step_ms": 400.0}],
        "torch_train_step.py": [{"tokens_per_s": 200, "first_step_s": 50.0, "step_ms": 600.0}],
        "experts.py": [{"experts": 4, "dim": 8, "moe_ms": 2, "dense_ms": 1, "ratio": 2.0}],
        "input.py": [
            {"fit_s": 2, "sum_of_steps_s": 2, "fit_to_steps": 1.0, "times_faster": 9}
            | {"batches_per_s_alone": 9, "batches_per_s_in_training": 1}
        ],
        "scaling.py": [{"joint_ms": 1, "sum_of_single_ms": 2, "ratio": 0.5}],
        "decode.py": [
            {"batch": 1, "length": 32, "parameters": 9, "ms_per_position": 2.0},
            {"what": "decode ratios", "256_to_32_tokens": 1.2},
        ],
        "torch_decode.py": [{"batch": 1, "length": 32, "parameters": 9, "ms_per_position": 8.0}],
    }
    monkeypatch.setattr(compare, "run", lambda python, script, *arguments: made_up[script])
    monkeypatch.setattr(sys, "argv", ["compare", "--torch", sys.executable])
    compare.main()
    table = capsys.readouterr().out
    assert "| tokens/s, 16 experts: ours float32 against torch float32 | 300 / 200 | 1.50 |" in table
    assert "| 9.0 / 50.0 | 0.18 |" in table
    assert "ours against T5's | 2.0 / 8.0 | 0.25 |" in table


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("compare", ["--torch", "no/python"], "needs a Python with torch"),
        ("serve", ["no/export"], "Received: 'no/export'"),
    ],
)
def test_mistakes_end_in_a_line(name, arguments, message, run, capsys):
    with pytest.raises(SystemExit) as stopped:
        run(name, *arguments)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
