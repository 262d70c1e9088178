"""The recipe of the paper's eight tasks, at reduced width on TFDS' fake data and a fake treebank."""

import json
import pathlib
import subprocess
import sys

import keras
import psutil
import pytest
import tensorflow_datasets as tfds

import multimodel as mm
from multimodel import Body
from multimodel.body import MoEBlock
from multimodel.cli import run_command
from multimodel.tasks import TfdsSource
from multimodel.training.build import build_model
from recipes import paper
from tests.reference import parameter_counts

ROOT = pathlib.Path(__file__).parent.parent
TASKS = ["imagenet", "captions", "wmt_en_de", "wmt_de_en", "wmt_en_fr", "wmt_fr_en", "speech", "parsing"]


def fake_treebank(folder):
    for section in range(2, 24):
        file = folder / "treebank3" / f"{section:02}" / f"wsj_{section:02}01.mrg"
        file.parent.mkdir(parents=True)
        trees = [f"( (S (NP-SBJ (DT The) (NN cat{i})) (VP (VBZ sleeps)) (. .)))" for i in range(3)]
        file.write_text("\n".join(trees))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One step of all eight tasks, and their scores."""
    folder = tmp_path_factory.mktemp("paper")
    fake_treebank(folder)
    with pytest.MonkeyPatch.context() as patch, tfds.testing.mock_data(num_examples=4):
        patch.setenv("MULTIMODEL_DATA", str(folder))
        patch.setattr(paper, "SECONDS", 1)
        patch.setattr(TfdsSource, "_decoders", lambda source: None)  # which TFDS' fakes cannot take for COCO
        recipe = paper.recipe(Body.tiny(16), picture_size=48)
        bundle = mm.train(recipe, folder / "run", steps=1, batch_size=16)
    return folder / "run", bundle


def test_trains_and_scores_all_eight_tasks(run):
    metrics = json.loads((run[0] / "metrics.json").read_text())
    assert list(metrics["tasks"]) == TASKS
    for task, scores in metrics["tasks"].items():
        assert scores["examples"] == {"captions": 20, "parsing": 3}.get(task, 4)
        assert 0 <= scores.get("token_accuracy", 0) <= 1
        assert scores["log_perplexity"] > 0
    assert metrics["tasks"]["imagenet"]["top5"] >= metrics["tasks"]["imagenet"]["accuracy"]
    assert 0 <= metrics["tasks"]["parsing"]["bracket_f1"] <= 1


def test_answers_raw_inputs(run):
    model = mm.load(run[0])
    assert model.predict("parsing", ["The cat sleeps ."]) == run[1].predict("parsing", ["The cat sleeps ."])
    assert len(model.predict("wmt_en_fr", ["one", "two"])) == 2


def test_the_load_of_each_expert_is_logged_for_each_task(run):
    record = json.loads((run[0] / "history.jsonl").read_text().splitlines()[-1])
    assert list(record["expert_load"]["encoder_experts"]) == TASKS
    assert list(record["expert_load"]["decoder_experts"]) == TASKS[1:]


def test_missing_data_is_told_for_each_task(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MULTIMODEL_DATA", str(tmp_path))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    monkeypatch.chdir(tmp_path)
    assert run_command(["train", "paper"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(TASKS)
    for task, line in zip(TASKS, lines, strict=True):
        assert line.startswith(f"Error: Task '{task}': ")
        assert "tfds build" in line or "LDC99T42" in line
    assert "imagenet2012 --file_format=array_record" in lines[0]
    assert not (tmp_path / "runs" / "paper" / "run.json").exists()


def test_tasks_with_data_can_be_trained_without_the_others(tmp_path, monkeypatch, capsys):
    fake_treebank(tmp_path)
    monkeypatch.setenv("MULTIMODEL_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert run_command(["train", "paper", "--tasks", "speech,parsing"]) == 2
    assert "The others can be trained alone: --tasks parsing" in capsys.readouterr().err


def test_speech_of_the_wall_street_journal_is_read_from_a_local_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MULTIMODEL_DATA", str(tmp_path))
    (tmp_path / "wsj").mkdir()
    (tmp_path / "wsj" / "train.jsonl").write_text('{"audio": "a.wav", "text": "hello"}\n')
    source = paper.speech()
    assert list(source.examples("train")) == [{"audio": "a.wav", "text": "hello"}]
    assert source.folder == tmp_path / "wsj"


def counted(body):
    """`{part: parameters}` of the recipe's model, with no weight allocated."""
    with keras.StatelessScope(initialize_variables=False):
        model = build_model(paper.recipe(body))
        return {name: getattr(model, name).count_params() for name in ("body", *model.part_names())}


@pytest.mark.parametrize(("dim", "num_experts"), [(1024, 240), (1024, 60), (64, 5)])
def test_parameters_by_formula(dim, num_experts):
    expected = parameter_counts.paper(dim, num_experts)
    assert counted(Body.paper(dim, num_experts)) == expected


@pytest.mark.parametrize(
    ("body", "depths", "dim", "num_experts"),
    [
        (Body.paper(), (6, 2, 4), 1024, 240),
        (Body.base(), (6, 2, 4), 512, 60),
        (Body.small(), (3, 1, 2), 128, 4),
        (Body.tiny(), (2, 1, 1), 32, 4),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_presets(body, depths, dim, num_experts):
    with keras.StatelessScope(initialize_variables=False):
        body.build()
        assert body.count_params() == parameter_counts.body(dim, num_experts, *depths)


def test_presets_take_arguments_of_their_experts():
    body = Body.paper(dim=16, num_experts=6, moe={"top_k": 2, "capacity_factor": 1.25})
    blocks = [block for block in (*body.encoder, *body.decoder) if isinstance(block, MoEBlock)]
    assert [(block.top_k, block.num_experts, block.capacity_factor) for block in blocks] == [(2, 6, 1.25)] * 2


@pytest.mark.slow
def test_full_width_fits_into_16_gb():
    """A forward pass and a step of plain SGD of the 1.1 billion parameters, in a process of its own."""
    available = psutil.virtual_memory().available
    if available < 16 * 2**30:
        pytest.skip(f"needs 16 GB of free memory, and there are {available / 2**30:.0f}")
    result = subprocess.run(
        [sys.executable, "-m", "tests.full_width"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr[-2000:]
    record = json.loads(result.stdout.splitlines()[-1])
    assert record["parameters"] > 1.05e9
    assert record["loss_after"] < record["loss_before"]
    assert record["peak_gb"] < 16
