"""Tasks, sources and mixtures: shares, order, and errors that name their place."""

import json

import numpy as np
import PIL.Image
import pytest

from multimodel import Mixture, Task, UserError, Vocabulary
from multimodel.tasks import ArraySource, Audio, Image, JsonlSource, Label, Text
from multimodel.tasks.batches import MixedBatches
from multimodel.tasks.examples import encode_examples

LABEL = Label("kind", ("even", "odd"))


def task(name, size=10, **columns):
    images = [np.full((4, 4, 3), i, "uint8") for i in range(size)]
    columns = {"image": images, "kind": [LABEL.names[i % 2] for i in range(size)]} | columns
    return Task(name, ArraySource({"train": columns}), Image("image", 4, 4), LABEL, ("accuracy",))


def text_task(name, vocabulary):
    return Task(name, None, Text("x", vocabulary, 4), Text("y", vocabulary, 4))


def sound_task(name, rate):
    return Task(name, None, Audio("x", rate, 1.0), Label("y", ("a",)))


def batches(tasks, shares, seed=1, steps=100):
    examples = {t.name: encode_examples(t, "train") for t in tasks}
    return MixedBatches({t.name: t for t in tasks}, examples, shares, steps, seed)


@pytest.mark.parametrize(
    ("rates", "batch_size", "shares"),
    [
        ((1, 1), 10, (5, 5)),
        ((3, 1), 8, (6, 2)),
        ((1, 1, 1), 8, (3, 3, 2)),
        ((1000, 1), 4, (3, 1)),
        ((1000, 1, 1), 3, (1, 1, 1)),
        ((0.5, 0.25, 0.25), 7, (3, 2, 2)),
    ],
)
def test_shares(rates, batch_size, shares):
    found = Mixture({task(f"t{i}"): rate for i, rate in enumerate(rates)}).shares(batch_size)
    assert sum(found.values()) == batch_size
    assert sorted(found.values()) == sorted(shares)
    assert min(found.values()) >= 1


def test_a_batch_is_a_function_of_seed_and_step():
    tasks = [task("a"), task("b", 7)]
    one, again = (batches(tasks, {"a": 4, "b": 3}) for _ in range(2))
    forward = [one.rows("a", step) for step in range(20)]
    backward = [again.rows("a", step) for step in reversed(range(20))][::-1]
    np.testing.assert_array_equal(forward, backward)
    other = batches(tasks, {"a": 4, "b": 3}, seed=2)
    assert not np.array_equal(forward, [other.rows("a", step) for step in range(20)])


def test_another_task_leaves_the_order_of_the_others():
    alone, joined = batches([task("a")], {"a": 4}), batches([task("b", 5), task("a")], {"a": 4, "b": 2})
    for step in range(9):
        np.testing.assert_array_equal(alone.rows("a", step), joined.rows("a", step))


def test_every_epoch_sees_every_example_once_in_a_new_order():
    made = batches([task("a", 12)], {"a": 5})
    rows = np.concatenate([made.rows("a", step) for step in range(12)])  # 60 places, 5 epochs
    epochs = rows.reshape(5, 12)
    assert all(sorted(epoch) == list(range(12)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 5


def test_a_share_may_exceed_the_examples():
    assert np.bincount(batches([task("a", 2)], {"a": 5}).rows("a", 0), minlength=2).tolist() in ([3, 2], [2, 3])


def test_a_batch_has_inputs_targets_and_weights():
    vocabulary = Vocabulary(320)
    vocabulary.train(["a b", "c"] * 9)
    source = ArraySource({"train": {"x": ["a b", "c"], "y": ["c", "a b"]}})
    text = Task("text", source, Text("x", vocabulary, 6), Text("y", vocabulary, 4))
    x, y, w = batches([text, task("label")], {"text": 2, "label": 3})[0]
    assert x["text"]["inputs"].shape == (2, 6)
    np.testing.assert_array_equal(x["text"]["inputs_mask"], x["text"]["inputs"] != 0)
    np.testing.assert_array_equal(x["text"]["targets"], y["text"])
    np.testing.assert_array_equal(w["text"], y["text"] != 0)
    assert "targets" not in x["label"]  # a model must not read the label that it is to guess
    assert w["label"].tolist() == [[1], [1], [1]]  # class 0 is no padding
    static = batches([text], {"text": 2}).dataset().element_spec[0]["text"]["inputs"].shape
    assert static == (2, 6)


def test_the_end_of_training_waits_for_no_tuner():
    """To end TensorFlow's autotuning thread took up to a minute."""
    assert batches([task("a")], {"a": 4}).dataset().options().autotune.enabled is False


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: task("a b"), "Try 'a_b'"),
        (lambda: Mixture({}), "has tasks"),
        (lambda: Mixture({task("a"): 1, task("a"): 1}), "Rename one"),
        (lambda: Mixture({task("a"): 0}), "positive and finite. Received: 0"),
        (lambda: Mixture({task("a"): float("inf")}), "positive and finite. Received: inf"),
        (lambda: Mixture({task("a"): 1, task("b"): 1}).shares(1), "batch_size of at least 2"),
        (lambda: Task("a", None, LABEL, LABEL), "inputs must be a feature of text or image or audio"),
        (
            lambda: Mixture({text_task("a", Vocabulary(400)): 1, text_task("b", Vocabulary(400)): 1}),
            "share 'text_input'",
        ),
        (lambda: Mixture({sound_task("a", 8000): 1, sound_task("b", 16000): 1}), "share 'audio_input'"),
        (lambda: Vocabulary(400, "a/b"), "vocabulary's name"),
        (lambda: Vocabulary(400).train(["", ""]), "Received: 2 empty strings"),
        (lambda: ArraySource({"train": {"a": [1], "b": []}}), "one length. Received: {'a': 1, 'b': 0}"),
        (lambda: encode_examples(task("a"), "tset"), "Unknown split. Received: split='tset'"),
        (lambda: encode_examples(task("a", 0), "train"), "at least one example. Received: 0"),
        (lambda: encode_examples(task("a", kind=["even"] * 9 + ["evne"]), "train"), r"'kind', example 9 \('evne'\)"),
        (
            lambda: encode_examples(task("a", image=["no.png"] * 10), "train"),
            r"'image', example 0 \('no.png'\): No such",
        ),
    ],
)
def test_mistakes_are_named(build, message):
    with pytest.raises(UserError, match=message):
        build()


def test_a_missing_field_is_named():
    source = ArraySource({"train": {"picture": [1]}})
    with pytest.raises(UserError, match=r"has the field 'image'. Received: example 0 with \['picture'\]"):
        encode_examples(Task("a", source, Image("image", 4, 4), LABEL), "train")


def jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_jsonl_splits_by_share_without_overlap(tmp_path):
    path = jsonl(tmp_path / "pairs.jsonl", [{"en": str(i)} for i in range(100)])
    source = JsonlSource(path, held_out={"validation": 0.05, "test": 0.1})
    found = {split: [row["en"] for row in source.examples(split)] for split in source.splits}
    assert sorted(sum(found.values(), []), key=int) == [str(i) for i in range(100)]
    assert {split: len(rows) for split, rows in found.items()} == pytest.approx(
        {"train": 85, "validation": 5, "test": 10}, abs=1
    )


def test_jsonl_of_several_files_and_paths_beside_them(tmp_path):
    PIL.Image.new("RGB", (4, 4), (9, 9, 9)).save(tmp_path / "cat.png")
    paths = {
        split: jsonl(tmp_path / f"{split}.jsonl", [{"image": "cat.png", "text": "cat"}]) for split in ("train", "test")
    }
    source = JsonlSource(splits=paths)
    assert source.splits == ("train", "test")
    label = Label("text", ("cat",))
    made = encode_examples(Task("a", source, Image("image", 4, 4), label), "test")
    assert (made.inputs == 9).all()
    assert made.raw_targets == ["cat"]


def test_text_that_is_also_a_file_stays_text(tmp_path):
    (tmp_path / "cat").write_text("a file of that name")
    source = JsonlSource(jsonl(tmp_path / "train.jsonl", [{"text": "cat"}] * 3), held_out={})
    assert source.examples("train")[0] == {"text": "cat"}


@pytest.mark.parametrize(
    ("content", "message"), [("{\n", "line 1: not JSON"), ('{"a": 1}\n[1]\n', "line 2: each line is a JSON object")]
)
def test_a_bad_line_is_named(tmp_path, content, message):
    (tmp_path / "bad.jsonl").write_text(content)
    with pytest.raises(UserError, match=message):
        JsonlSource(tmp_path / "bad.jsonl").examples("train")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"nowhere.jsonl', which is no file"):
        JsonlSource(tmp_path / "nowhere.jsonl").examples("train")
