"""`multimodel check`: what is unusable, odd, too long, unbalanced, or there twice."""

import json

import numpy as np
import PIL.Image
import pytest
import soundfile

from multimodel import Task, UserError, Vocabulary
from multimodel.cli import run_command
from multimodel.tasks import ArraySource, Audio, FolderSource, Image, Label, Text, fingerprints
from multimodel.tasks.check import check_path, check_tasks
from tests.odd_files import CLIPS, IMAGES


def report_of(task):
    return check_tasks({task.name: task})


def noise(seed, size=(40, 30)):
    """A picture with a pattern of its own, smooth enough to survive JPEG."""
    random = np.random.default_rng(seed)
    return PIL.Image.fromarray(random.integers(0, 256, (6, 8, 3), "uint8")).resize(size, PIL.Image.Resampling.BICUBIC)


@pytest.mark.parametrize("odds", [IMAGES, CLIPS], ids=["pictures", "clips"])
def test_every_odd_file_is_named(tmp_path, odds, capsys):
    """In a folder with all of them: each unusable and each odd one is told, and nothing else."""
    default = ".img" if odds is IMAGES else ".wav"
    for number, odd in enumerate(odds):
        (tmp_path / f"{number:02}{odd.suffix or default}").write_bytes(odd.content)
    feature = Image("file", 8, 8) if odds is IMAGES else Audio("file", 8000, 1.0)
    source = FolderSource(tmp_path, held_out={})
    files = [source.examples("train")[row]["file"] for row in range(len(odds))]
    task = Task(
        "odd",
        ArraySource({"train": {"file": [str(tmp_path / f) for f in files], "name": ["x"] * len(files)}}),
        feature,
        Label("name", ("x",)),
    )
    report = report_of(task)
    unusable = {one["path"][len(str(tmp_path)) + 1 :]: one["reason"] for one in report["unusable"]}
    noted: dict = {}
    for one in report["odd"]:
        noted.setdefault(one["path"][len(str(tmp_path)) + 1 :], []).append(one["reason"])
    assert report["examples"] == len(odds)
    for number, odd in enumerate(odds):
        (name,) = [file for file in files if file.startswith(f"{number:02}")]
        assert (name in unusable) == bool(odd.message), odd.name
        assert odd.message in unusable.get(name, "")
        if odd.odd:
            assert any(odd.odd in note for note in noted[name]), odd.name
    code = run_command(["check", str(tmp_path), "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert code == 3
    assert {one["path"] for one in shown["unusable"]} == {str(tmp_path / name) for name in unusable}


def test_a_good_folder_is_good(tmp_path, capsys):
    for i in range(6):
        (tmp_path / "ab"[i % 2]).mkdir(exist_ok=True)
        noise(i).save(tmp_path / "ab"[i % 2] / f"{i}.png")
    assert run_command(["check", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "a 3, b 3" in out
    assert "width 40" in out
    assert "unusable" not in out


def test_a_folder_of_clips_and_one_file(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.sin(np.arange(900)) / 2, 44100)
    report = check_path(tmp_path)
    assert report["splits"][0]["fields"]["file"]["samples"]["most"] == 900
    assert not report["odd"]  # without a recipe there is no rate to differ from
    assert check_path(tmp_path / "a.wav")["examples"] == 1


def test_tables_without_a_recipe(tmp_path, capsys):
    noise(0).save(tmp_path / "a.png")
    rows = [{"image": "a.png", "text": "one two"}, {"image": "gone.png", "text": ""}, {"image": "a.png"}, 7]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "rows.csv").write_text("image,text\na.png,one\ngone.png,two\na.png\n")
    for name, unusable in (("rows.jsonl", 2), ("rows.csv", 2)):
        assert run_command(["check", str(tmp_path / name), "--json"]) == 3
        report = json.loads(capsys.readouterr().out)
        assert len(report["unusable"]) == unusable
        assert {one["reason"] for one in report["unusable"]} >= {"No such file or directory"}
        assert list(report["splits"][0]["fields"]) == ["image", "text"]


@pytest.mark.parametrize("data", ["no/such/folder", "quickstrat"])
def test_what_is_not_there_is_named(data, capsys):
    assert run_command(["check", data]) == 2
    assert f"Received: '{data}'" in capsys.readouterr().err


def test_an_empty_folder_is_named(tmp_path):
    with pytest.raises(UserError, match="without any"):
        check_path(tmp_path)


def test_a_recipe(capsys):
    assert run_command(["check", "tests/tiny_recipe.py", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    splits = {(part["task"], part["split"]): part for part in report["splits"]}
    assert set(splits) == {(task, split) for task in ("colours", "captions", "upper") for split in ("train", "test")}
    assert report["examples"] == 2 * 60 + 2 * 20 + 100 + 20
    assert sum(splits["colours", "train"]["fields"]["name"]["labels"].values()) == 60
    assert splits["upper", "train"]["fields"]["text"]["ids"]["most"] >= 4
    assert any(group["across_splits"] for group in report["duplicates"] if group["task"] == "colours")
    assert run_command(["check", "tests/tiny_recipe.py", "--tasks", "uper"]) == 2
    assert "Did you mean 'upper'" in capsys.readouterr().err


def test_text_that_is_cut_is_counted_in_ids():
    words = Vocabulary(320)
    source = ArraySource({"train": {"x": ["a b c d e f g h"] * 3 + ["a"], "y": ["a"] * 4}})
    report = report_of(Task("t", source, Text("x", words, 5), Text("y", words, 5, too_long="refuse")))
    fields = report["splits"][0]["fields"]
    assert fields["x"]["too_long"] == 0.75
    assert fields["x"]["then"] == "cut"
    assert fields["y"]["too_long"] == 0
    assert fields["y"]["then"] == "refuse"


def test_equal_and_near_pictures_are_found_across_splits(tmp_path):
    for i in range(12):
        noise(i).save(tmp_path / f"{i}.png")
    noise(3).save(tmp_path / "smaller.jpg", quality=90)
    noise(5, (80, 60)).save(tmp_path / "larger.png")
    noise(7).save(tmp_path / "same.bmp")
    names = [f"{i}.png" for i in range(12)] + ["larger.png"], ["smaller.jpg", "same.bmp"]
    columns = [{"file": [str(tmp_path / n) for n in part], "name": ["x"] * len(part)} for part in names]
    source = ArraySource({"train": columns[0], "test": columns[1]})
    report = report_of(Task("t", source, Image("file", 8, 8), Label("name", ("x",))))
    found = {(one["kind"], one["across_splits"], one["count"]) for one in report["duplicates"]}
    assert found == {("exact", True, 2), ("near", True, 2), ("near", False, 2)}
    shown = [" ".join(one["examples"]) for one in report["duplicates"]]
    assert any("7.png" in line and "same.bmp" in line for line in shown)
    assert any("3.png" in line and "smaller.jpg" in line for line in shown)


def test_near_text_and_clips():
    near = fingerprints.near
    assert near("text", "The cat, sat.") == near("text", "the CAT sat")
    assert near("text", "the cat sits") != near("text", "the cat sat")
    assert near("text", "!!!") != near("text", "???")
    random = np.random.default_rng(0)
    clips = [random.normal(size=4000) * np.repeat(random.uniform(0.1, 1, 20), 200) for _ in range(6)]
    keys = [near("audio", clip) for clip in [*clips, clips[2] * 0.5 + random.normal(size=4000) * 1e-4]]
    assert fingerprints.near_groups(keys) == [[2, 6]]


def test_near_groups_among_thousands():
    """Every near pair is found, and no others, whatever order they stand in."""
    random = np.random.default_rng(0)
    vectors = random.integers(0, 256, (3000, 192), dtype="uint8")
    copies = np.clip(vectors[:50].astype(int) + random.integers(-2, 3, (50, 192)), 0, 255).astype("uint8")
    groups = fingerprints.near_groups([*vectors, *copies])
    assert len(groups) >= 48
    assert all(b == a + 3000 for a, b in groups)


def test_nothing_near_in_nothing():
    assert fingerprints.near_groups([]) == []
    assert fingerprints.near_groups([np.zeros(192, "uint8")]) == []
