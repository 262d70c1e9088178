"""Datasets in the cache: built once, whole or not at all, checked, and split without leaks."""

import ast
import json
import sys

import numpy as np
import pytest

from multimodel import UserError
from multimodel.tasks import animals, numbers, python_ast, scenes, speech
from multimodel.tasks.cache import cache_folder
from multimodel.tasks.prepared import PreparedSource
from multimodel.tasks.syntax_trees import bracketed

SPEECH = sys.modules["multimodel.tasks.spoken_words"]
COLUMNS = {
    "text": ["", "a\0", "müd\n"],
    "array": np.arange(6).reshape(3, 2),
    "clip": [np.arange(4, dtype="int16"), np.zeros(0, "int16"), np.ones(2, "int16")],
}


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MULTIMODEL_CACHE", str(tmp_path))
    return tmp_path


def source(builds, name="set", columns=COLUMNS):
    def build(progress):
        builds.append(name)
        progress(1, 1)
        return {"train": columns}

    return PreparedSource(name, 1, ("train",), build)


def test_columns_of_every_kind_come_back(own_cache):
    rows = source([]).examples("train")
    assert [row["text"] for row in rows] == COLUMNS["text"]
    np.testing.assert_array_equal([row["array"] for row in rows], COLUMNS["array"])
    for row, clip in zip(rows, COLUMNS["clip"], strict=True):
        np.testing.assert_array_equal(row["clip"], clip)


def test_built_once_then_read(own_cache):
    builds = []
    source(builds).prepare()
    source(builds).prepare()
    assert builds == ["set"]


@pytest.mark.parametrize("damage", ["cut", "changed", "missing", "manifest"])
def test_a_damaged_dataset_is_built_again(own_cache, damage):
    builds = []
    made = source(builds)
    made.prepare()
    file = made._folder / ("manifest.json" if damage == "manifest" else "train.npz")
    content = file.read_bytes()
    if damage == "missing":
        file.unlink()
    elif damage == "changed":
        file.write_bytes(content[:-30] + b"x" + content[-29:])
    else:
        file.write_bytes(content[: len(content) // 2])
    assert len(source(builds).examples("train")) == 3
    assert builds == ["set", "set"]


def test_a_build_that_fails_leaves_nothing(own_cache):
    def build(progress):
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        PreparedSource("set", 1, ("train",), build).prepare()
    assert not list(own_cache.iterdir())


def test_two_builders_at_once_agree(own_cache):
    builds = []
    slow = source(builds)

    def build(progress):
        source(builds).prepare()  # another process is faster
        return {"train": COLUMNS}

    slow._build = build
    slow.prepare()
    assert [path.name for path in own_cache.iterdir()] == ["set-1"]
    assert len(slow.examples("train")) == 3


def test_an_unwritable_cache_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MULTIMODEL_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(UserError, match="Set MULTIMODEL_CACHE"):
        source([]).prepare()


def test_the_cache_has_a_place_of_its_own(monkeypatch, tmp_path):
    monkeypatch.delenv("MULTIMODEL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    assert cache_folder() == tmp_path / "multimodel"


@pytest.mark.parametrize("package", ["espeakng_loader", "num2words"])
def test_a_missing_package_gives_the_command(own_cache, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    make = {"espeakng_loader": speech, "num2words": numbers}[package]
    with pytest.raises(UserError, match=rf"no package '{package}'.*pip install 'multimodel\[quickstart\]'"):
        make().prepare()


def values(made, field):
    return {split: [example[field] for example in made.examples(split)] for split in made.splits}


def assert_disjoint(splits):
    seen = [set(part) for part in splits.values()]
    for i, one in enumerate(seen):
        assert one
        for other in seen[i + 1 :]:
            assert not one & other


def test_no_statement_is_in_two_splits():
    made = python_ast()
    assert_disjoint(values(made, "statement"))
    for example in made.examples("test")[:50]:
        assert example["tree"] == bracketed(ast.parse(example["statement"]).body[0])


def test_bracketed_by_hand():
    assert bracketed(ast.parse("b = t1 - u1").body[0]) == "(Assign (Name) (BinOp (Name) (Sub) (Name)))"


def test_no_number_is_in_two_splits():
    made = numbers()
    for language in ("en", "de"):
        assert_disjoint(values(made, language))
    everything = sum(values(made, "de").values(), [])
    assert len(everything) == len(set(everything)) == 10000
    pair = next(e for e in made.examples("train") if e["en"] == "two hundred and thirty-four")
    assert pair["de"] == "zweihundertvierunddreißig"


def test_no_picture_is_in_two_splits_even_mirrored():
    splits = values(animals(), "image")
    keys = {
        split: [min(image.tobytes(), image[:, ::-1].tobytes()) for image in images] for split, images in splits.items()
    }
    assert_disjoint(keys)
    for split in ("validation", "test"):
        assert len(set(keys[split])) == len(keys[split])


def test_scenes_hold_only_pictures_of_their_split():
    """A scene of one animal, cut out, is a picture of the same split and no other."""
    pictures = {
        split: {image.tobytes() for picture in images for image in (picture, picture[:, ::-1])}
        for split, images in values(animals(), "image").items()
    }
    for split in ("validation", "test"):
        found = 0
        for example in scenes().examples(split):
            if len(example["caption"].split()) == 2 and example["caption"].startswith("a"):
                cuts = {
                    example["image"][y : y + 28, x : x + 28].tobytes() for y in range(14, 23) for x in range(14, 23)
                }
                assert cuts & pictures[split], example["caption"]
                found += not cuts & pictures["train"]
        assert found > 50


def test_captions_are_right_about_articles_and_plurals():
    captions = set(values(scenes(), "caption")["train"])
    assert "an elephant" in captions
    assert "two sheep" in captions
    assert not [c for c in captions if "a elephant" in c or "sheeps" in c]
    assert 150 < len(captions) <= 230


def test_no_voice_speaks_in_two_splits():
    assert_disjoint(SPEECH.VOICES)


def test_speech_is_sound_of_its_words():
    for split, examples in ((split, speech().examples(split)) for split in speech().splits):
        assert len(examples) == SPEECH.CLIPS[split]
        for example in examples:
            assert 1 <= len(example["text"].split()) <= 3
            assert 0.1 < len(example["audio"]) / SPEECH.SAMPLE_RATE < 2
            assert np.abs(example["audio"]).max() > 1000


def test_an_unknown_voice_is_an_error_not_another_voice():
    with pytest.raises(RuntimeError, match="no voice 'en-gb"):
        SPEECH._Speaker().say("one", "en-gb+m1", 170, 50)


def test_the_manifest_names_every_file():
    made = numbers()
    made.prepare()
    files = json.loads((made._folder / "manifest.json").read_text())["files"]
    assert set(files) == {f"{split}.npz" for split in made.splits}
