"""Datasets of tensorflow-datasets: prepared, missing, misnamed, and taken apart."""

import json

import numpy as np
import pytest
import tensorflow_datasets as tfds

import multimodel as mm
from multimodel import Body, Mixture, Recipe
from multimodel.tasks import (
    ArraySource,
    FlattenedSource,
    Image,
    JsonlSource,
    Label,
    Task,
    Text,
    TfdsSource,
    Vocabulary,
    encoded,
    examples,
)
from multimodel.tasks.batches import MixedBatches
from multimodel.tasks.encoded import LazyExamples, encode_examples, training_examples
from multimodel.tasks.examples import sampled_field


class Pairs(tfds.core.GeneratorBasedBuilder):
    """A dataset of its own, with every kind of field."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = {
            "picture": tfds.features.Image(shape=(None, None, 3)),
            "kind": tfds.features.ClassLabel(names=["even", "odd"]),
            "speech": tfds.features.Audio(sample_rate=8000, dtype=np.int16),
            "captions": tfds.features.Sequence({"text": tfds.features.Text(), "id": np.int64}),
        }
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(0, 20), "validation": self._generate_examples(20, 24)}

    def _generate_examples(self, start, stop):
        for i in range(start, stop):
            captions = {"text": [f"caption {i} é", f"another {i}"], "id": [i, i + 1]}
            picture = np.full((5, 6, 3), i, np.uint8)
            yield i, {"picture": picture, "kind": i % 2, "speech": np.arange(9, dtype=np.int16), "captions": captions}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("tfds")
    Pairs(data_dir=place, file_format="array_record").download_and_prepare()
    return place


def number_of(example):
    return int(Image("picture", 5, 6).read(example["picture"])[0, 0, 0])


def test_every_kind_of_field(folder):
    examples = TfdsSource("pairs", data_dir=folder).examples("train")
    assert len(examples) == 20
    assert sorted(number_of(example) for example in examples) == list(range(20))
    for example in examples:
        number = number_of(example)
        assert example["kind"] == ["even", "odd"][number % 2]
        np.testing.assert_array_equal(example["speech"], np.arange(9))
        assert example["speech"].dtype == np.int16
        assert [text.decode() for text in example["captions/text"]] == [f"caption {number} é", f"another {number}"]


def test_fields_can_be_chosen_and_named_anew(folder):
    example = TfdsSource("pairs", fields=("kind", "captions/text"), data_dir=folder).examples("train")[3]
    assert list(example) == ["kind", "captions/text"]
    example = TfdsSource("pairs", fields={"sound": "speech"}, data_dir=folder).examples("train")[3]
    assert list(example) == ["sound"]


def test_a_dataset_without_a_test_split_is_tested_on_its_validation_split(folder):
    source = TfdsSource("pairs", data_dir=folder)
    assert source.splits == ("train", "validation", "test")
    assert {number_of(e) for e in source.examples("test")} == {number_of(e) for e in source.examples("validation")}


def test_slices_share_no_example(folder):
    source = TfdsSource("pairs", {"train": "train[:75%]", "test": "train[75%:]"}, data_dir=folder)
    train, test = ({number_of(example) for example in source.examples(split)} for split in ("train", "test"))
    assert len(train) == 15
    assert len(test) == 5
    assert not train & test


def test_labels_are_known_before_the_data_is(tmp_path):
    names = TfdsSource("imagenet2012", data_dir=tmp_path).labels("label")
    assert len(names) == 1000
    assert names[0] == "n01440764"


def test_each_caption_is_an_example(folder):
    source = FlattenedSource(TfdsSource("pairs", data_dir=folder), "captions/text", 3)
    assert source.missing() is None
    examples = source.examples("train")
    assert len(examples) == 60
    number = number_of(examples[3])
    texts = [examples[row]["captions/text"].decode() for row in (3, 4, 5)]
    assert texts == [f"caption {number} é", f"another {number}", f"caption {number} é"]  # two, taken three times
    assert len({number_of(example) for example in examples}) == 20


def test_missing_data_is_told_with_its_command(tmp_path):
    message = TfdsSource("imagenet2012", {"train": "train"}, data_dir=tmp_path).missing()
    assert f"tfds build imagenet2012 --file_format=array_record --data_dir {tmp_path}" in message
    assert "ILSVRC2012_img_train.tar" in message
    assert "\n" not in message
    with pytest.raises(mm.UserError, match="must be prepared"):
        TfdsSource("imagenet2012", {"train": "train"}, data_dir=tmp_path).examples("train")


def test_a_dataset_that_is_not_prepared_is_told_without_naming_splits(tmp_path):
    source = TfdsSource("mnist", data_dir=tmp_path)
    assert "tfds build mnist" in source.missing()
    assert source.splits == ()


def test_fields_that_are_not_there_are_named(folder):
    with pytest.raises(mm.UserError, match="Unknown field. Received: field='knid'. Did you mean 'kind'"):
        TfdsSource("pairs", fields=("knid",), data_dir=folder).examples("train")[0]
    with pytest.raises(mm.UserError, match="Unknown field. Received: field='lable'. Did you mean 'label'"):
        TfdsSource("imagenet2012", data_dir=folder).labels("lable")


def test_any_source_can_be_flattened(tmp_path):
    (tmp_path / "rows.jsonl").write_text(
        '{"image": "a.png", "texts": ["one", "two"]}\n{"image": "b.png", "texts": []}\n'
    )
    source = FlattenedSource(JsonlSource(tmp_path / "rows.jsonl", held_out={}), "texts", 2)
    assert source.missing() is None
    assert source.folder == tmp_path
    assert [source.examples("train")[row]["texts"] for row in (0, 1)] == ["one", "two"]
    assert source.examples("train")[2]["texts"] is None
    assert FlattenedSource(JsonlSource(tmp_path / "rows.jsonl"), "txets", 2).examples("train")[0]["txets"] is None


def test_a_bad_example_met_in_training_is_named_and_costs_no_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(encoded, "IN_MEMORY", 100)
    images = [np.full((8, 8, 3), 200, "uint8")] * 40
    columns = {"image": [*images, "broken"], "name": ["red", "blue"] * 20 + ["red"]}
    source = ArraySource({"train": columns, "test": {"image": images, "name": ["red", "blue"] * 20}})
    task = Task("colours", source, Image("image", 8, 8), Label("name", ("red", "blue")), ("accuracy",))
    recipe = Recipe("lazy", Mixture({task: 1}), Body.tiny(16), steps=50, batch_size=4)
    with pytest.raises(mm.UserError, match=r"^Task 'colours', field 'image', example 40 \('broken'\)"):
        mm.train(recipe, tmp_path / "run", log_every=1)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "failed"
    assert json.loads((tmp_path / "run" / "left_out.jsonl").read_text())["row"] == 40
    assert mm.load(tmp_path / "run").predict("colours", images[:1])[0] in ("red", "blue")


def test_data_in_another_format_is_told_how_to_convert(tmp_path):
    Pairs(data_dir=tmp_path, file_format="tfrecord").download_and_prepare()
    message = TfdsSource("pairs", data_dir=tmp_path).missing()
    assert "prepared as tfrecord" in message
    assert "tfds convert_format" in message


@pytest.mark.parametrize(
    ("name", "splits", "message"),
    [
        ("pears", None, "Unknown dataset. Received: dataset='pears'. Did you mean 'pairs'"),
        ("wmt14_translate/de-xx", None, "names a dataset and its config. Received: name='wmt14_translate/de-xx'"),
        ("pairs", {"train": "train", "test": "tset"}, "Unknown split 'tset'"),
    ],
)
def test_a_wrong_name_is_named(folder, name, splits, message):
    with pytest.raises(mm.UserError, match=message):
        TfdsSource(name, splits, data_dir=folder).missing()


def task_of(folder):
    words = Vocabulary(320)
    source = FlattenedSource(TfdsSource("pairs", data_dir=folder), "captions/text", 2)
    task = Task("captions", source, Image("picture", 5, 6), Text("captions/text", words, 30))
    words.train(sampled_field(task, task.targets, "train"))
    return task


def test_examples_that_do_not_fit_into_memory_are_read_for_each_batch(folder, monkeypatch):
    task = task_of(folder)
    monkeypatch.setattr(encoded, "IN_MEMORY", 100)
    monkeypatch.setattr(encoded, "SHARE_OF_DISK", 0)
    lazy, eager = training_examples(task), encode_examples(task, "train")
    assert isinstance(lazy, LazyExamples)
    assert len(lazy) == len(eager) == 40
    batches = [MixedBatches({"captions": task}, {"captions": e}, {"captions": 8}, 10, seed=1) for e in (lazy, eager)]
    for step in (0, 7):
        for mine, theirs in zip(batches[0][step], batches[1][step], strict=True):
            tree = [mine["captions"], theirs["captions"]]
            parts = [part.values() if isinstance(part, dict) else [part] for part in tree]
            for one, other in zip(*parts, strict=True):
                np.testing.assert_array_equal(one, other)


def test_large_splits_are_sampled_evenly(folder, monkeypatch):
    monkeypatch.setattr(examples, "SAMPLE", 4)
    task = Task("kinds", TfdsSource("pairs", data_dir=folder), Image("picture", 5, 6), Label("kind", ("even", "odd")))
    rows = task.source.examples("train")
    assert sampled_field(task, task.targets, "train") == [rows[row]["kind"] for row in (0, 6, 12, 19)]
