"""Every shipped recipe trains for a step, scores itself, and answers."""

import json
import pathlib
import shutil

import multimodel as mm
import multimodel.quickstart
from multimodel.quickstart import write_examples
from multimodel.shipped import load_recipe, shipped_names


def test_every_shipped_recipe_has_a_test():
    assert shipped_names() == ["paper", "quickstart"]  # test_paper.py, and here


def test_quickstart_trains_and_scores_six_tasks(quickstart):
    folder, printed = quickstart
    metrics = json.loads((folder / "metrics.json").read_text())
    assert list(metrics["tasks"]) == [
        "animals",
        "captions",
        "speech",
        "numbers_en_de",
        "numbers_de_en",
        "python_ast",
    ]
    assert metrics["parameters"] <= 5_000_000
    for task, scores in metrics["tasks"].items():
        assert scores["examples"] >= 500
        headline = {"animals": "accuracy"}.get(task, "exact")
        assert 0 <= scores["baseline"][headline] < 0.2
        assert task in printed
    assert "Traceback" not in printed


def test_quickstart_exports_itself(quickstart):
    about = json.loads((quickstart[0] / "export/1/assets.extra/multimodel.json").read_text())
    assert list(about["parity"]) == list(json.loads((quickstart[0] / "metrics.json").read_text())["tasks"])
    for found in about["parity"].values():
        assert found["examples"] == found["equal"] == 100
        assert found["largest_score_difference"] < 1e-4


def test_quickstart_reads_its_own_kinds_of_files(quickstart, tmp_path):
    picture, clip = write_examples(tmp_path)
    model = mm.load(quickstart[0])
    for task, value in (
        ("captions", str(picture)),
        ("speech", str(clip)),
        ("numbers_en_de", "four"),
        ("animals", str(picture)),
    ):
        assert isinstance(model.predict(task, [value])[0], str)


def test_quickstart_cuts_less_than_one_in_a_hundred(quickstart):
    table = [
        line.split("│") for line in quickstart[1].split("Training")[0].splitlines() if "image" in line or "text" in line
    ]
    cells = {row[1].strip(): (int(row[4]), int(row[8])) for row in table if len(row) > 9}
    assert len(cells) == 6
    for task, (examples, cut) in cells.items():
        assert cut <= examples / 100, task


def test_quickstart_shares():
    recipe = load_recipe("quickstart")
    shares = recipe.mixture.shares(recipe.batch_size)
    assert shares == {
        "animals": 128,
        "captions": 64,
        "speech": 32,
        "numbers_en_de": 16,
        "numbers_de_en": 16,
        "python_ast": 64,
    }


def test_make_quickstart_reports_a_finished_run(quickstart, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(quickstart[0], "runs/quickstart")
    monkeypatch.setattr(multimodel.quickstart, "run_command", None)
    assert multimodel.quickstart.main() == 0
    printed = capsys.readouterr().out
    assert "is finished" in printed
    assert "python_ast" in printed
    assert printed.count(".venv/bin/multimodel predict") == 3


def test_make_quickstart_goes_on_with_a_broken_off_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("runs/quickstart").mkdir(parents=True)
    pathlib.Path("runs/quickstart/run.json").write_text('{"status": "running"}')
    commands = []
    monkeypatch.setattr(multimodel.quickstart, "run_command", lambda arguments: commands.append(arguments) or 2)
    assert multimodel.quickstart.main() == 2
    assert commands == [["train", "quickstart", "--out", "runs/quickstart", "--resume"]]
