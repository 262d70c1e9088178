"""Tasks and mixtures: shares, lengths, order, and errors that name their place."""

import dataclasses

import numpy as np
import pytest

from multimodel import Mixture, Task, UserError, Vocabulary
from multimodel.tasks import ArraySource, Audio, Epochs, Image, Label, Text
from multimodel.tasks.batches import MixedBatches
from multimodel.tasks.encoded import encode_examples

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


def sized(name, size):
    return task(name, size)


def test_rates_follow_sizes():
    tasks = [sized("a", 100), sized("b", 25), sized("c", 1)]
    assert Mixture.by_size(tasks).rates == {"a": 100, "b": 25, "c": 1}
    assert Mixture.by_size(tasks, temperature=2).rates == {"a": 10, "b": 5, "c": 1}
    assert Mixture.by_size(tasks, cap=25).rates == {"a": 25, "b": 25, "c": 1}
    assert Mixture.by_size(tasks).shares(126) == {"a": 100, "b": 25, "c": 1}


def test_sizes_are_not_read_before_they_are_needed():
    class Unread(ArraySource):
        def examples(self, split):
            raise AssertionError("read")

    unread = Task("a", Unread({"train": {"image": []}}), Image("image", 4, 4), LABEL)
    mixture = Mixture.by_size([unread, sized("b", 3)])
    assert mixture.only(["b"]).rates == {"b": 3}
    assert mixture.net_names() == {"image_input", "a_output", "b_output"}


def test_a_mixture_inside_shares_its_rate_out():
    inner = Mixture({sized("b", 4): 3, sized("c", 4): 1})
    mixture = Mixture({sized("a", 4): 1, inner: 2})
    assert mixture.rates == {"a": 1, "b": 1.5, "c": 0.5}
    assert list(mixture.tasks) == ["a", "b", "c"]
    assert mixture.only(["a", "c"]).rates == {"a": 1, "c": 2}
    by_size = Mixture.by_size([inner, sized("d", 4)])
    assert by_size.rates == {"b": 6, "c": 2, "d": 4}


@pytest.mark.parametrize(
    ("epochs", "steps"),
    [
        (Epochs(), 1000),
        (Epochs(2), 2000),
        (Epochs(0.5), 500),
        (Epochs(1, "first"), 1),
        (Epochs(3, "first"), 3),
        (Epochs(1, "middle"), 10),
        (Epochs(1.05, "middle"), 11),
    ],
)
def test_the_length_of_training_on_very_unequal_sizes(epochs, steps):
    sizes, shares = {"large": 10_000, "middle": 30, "tiny": 1}, {"large": 10, "middle": 3, "tiny": 1}
    assert epochs.steps(sizes, shares) == steps


def test_epochs_begin_anew_until_the_last_task_is_through():
    """Of a task of 1 and one of 50 examples, each sees all of its own, whatever the other does."""
    tasks, shares = [sized("tiny", 1), sized("large", 50)], {"tiny": 2, "large": 4}
    steps = Epochs().steps({"tiny": 1, "large": 50}, shares)
    made = batches(tasks, shares, steps=steps)
    seen = {name: np.concatenate([made.rows(name, step) for step in range(steps)]) for name in shares}
    assert steps == 13
    assert set(seen["large"]) == set(range(50))
    assert (seen["tiny"] == 0).all()


def test_a_later_batch_costs_no_earlier_ones(monkeypatch):
    """From step s on, the first batch reads the rows of its own step alone, and is what a run from the start sees."""
    made = batches([task("a")], {"a": 4}, steps=10**6)
    reads = []
    arrays = made.examples["a"].arrays
    monkeypatch.setattr(made.examples["a"], "arrays", lambda rows: reads.append(len(rows)) or arrays(rows))
    x, _, _ = next(iter(made.dataset(first=999_000)))
    assert sum(reads) <= 4 * 5  # the batch, the one that shapes are taken from, and those read ahead
    fresh = batches([task("a")], {"a": 4}, steps=10**6)
    np.testing.assert_array_equal(x["a"]["inputs"], fresh[999_000][0]["a"]["inputs"])


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
        (lambda: Mixture.by_size([task("a")], temperature=0.5), "Received: temperature=0.5"),
        (lambda: Epochs(0), "positive and finite. Received: count=0"),
        (lambda: Epochs(1, "b").steps({"a": 3}, {"a": 1}), "Unknown task. Received: task='b'"),
        (lambda: dataclasses.replace(task("a"), max_unusable=1), "max_unusable=1"),
        (lambda: dataclasses.replace(text_task("a", Vocabulary(400)), augmentation=(1,)), "augmentation of text"),
        (lambda: Vocabulary(400, "a/b"), "vocabulary's name"),
        (lambda: Vocabulary(400).train(["", ""]), "Received: 2 empty strings"),
        (lambda: ArraySource({"train": {"a": [1], "b": []}}), "one length. Received: {'a': 1, 'b': 0}"),
        (lambda: encode_examples(task("a"), "tset"), "Unknown split. Received: split='tset'"),
        (lambda: encode_examples(task("a", 0), "train"), "at least one example. Received: 0"),
        (
            lambda: encode_examples(task("a", kind=["even"] * 9 + ["evne"]), "train"),
            r"'kind', example 9: a label must be one of even, odd. Received: 'evne'",
        ),
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
    with pytest.raises(UserError, match=r"has the field 'kind'. Received: example 0 with \['picture'\]"):
        encode_examples(Task("a", source, Image("image", 4, 4), LABEL), "train")
