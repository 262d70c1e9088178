"""Generation against the whole model: position by position, and against every output that there is."""

import dataclasses
import itertools

import keras
import numpy as np
import pytest
from keras import ops

from modality_nets import TextInputNet, TextOutputNet
from multimodel import Body, MultiModel, Search, UserError
from multimodel.generation.generator import Generator
from tests.core import tiny
from tests.core.descriptors import randomize

FEW = 6  # ids of a model whose outputs can all be tried
TASK = "english_german"
# Searching is written once for both backends, and JAX compiles each shape of it for seconds.
once = pytest.mark.skipif(keras.backend.backend() == "jax", reason="what is searched for does not hang on the backend")


def generate(model, task, features, n_best=1, **search):
    return Generator(model, task, Search(**search), n_best).predict_on_batch(features)


def inputs_of(batch, task):
    return {name: array for name, array in batch[task].items() if name != "targets"}


def sharpened(model):
    """Gives it clear preferences: ties would hide in rounding."""
    model.text_output.softmax.kernel.assign(3 * ops.convert_to_numpy(model.text_output.softmax.kernel))
    return model


def sharp_model():
    return sharpened(tiny.model())


def model_of_few_ids():
    signature = dataclasses.replace(next(s for s in tiny.SIGNATURES if s.task == TASK), num_classes=FEW)
    nets = {"text_input": TextInputNet(tiny.VOCABULARY, tiny.DIM), "text_output": TextOutputNet(FEW, tiny.DIM)}
    model = MultiModel([signature], Body.small(tiny.DIM), nets)
    model.build()
    randomize(model, 0)
    return sharpened(model)


def features_of_few_ids(rows):
    batch = {TASK: tiny.features(rows)[TASK]}
    batch[TASK]["targets"] = batch[TASK]["targets"] % FEW
    return batch


def log_probabilities(model, task, batch, ids):
    """Of each id `(b, m, v)` after the ids before it, by the whole model."""
    logits = ops.convert_to_numpy(model({task: batch[task] | {"targets": ids}})[task])
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def length_of(ids):
    end = np.flatnonzero(ids == 1)
    return end[0] + 1 if len(end) else len(ids)


def score_of(row, ids):
    """The log-probability of `ids (m,)` under `row (m, v)`."""
    length = length_of(ids)
    return row[np.arange(length), ids[:length]].sum()


@pytest.mark.parametrize("task", ["captions", "speech", TASK])
def test_greedy_is_the_argmax_of_the_whole_model(task):
    """Each id is the most probable one after those before it, and the score is their log-probability."""
    model, batch = sharp_model(), tiny.features()
    outputs = generate(model, task, inputs_of(batch, task))
    ids = outputs["ids"][:, 0]
    expected = log_probabilities(model, task, batch, ids)
    for row in range(len(ids)):
        length = length_of(ids[row])
        np.testing.assert_array_equal(ids[row, :length], 1 + expected[row, :length, 1:].argmax(-1))
        assert not ids[row, length:].any()
        assert outputs["score"][row, 0] == pytest.approx(score_of(expected[row], ids[row]), abs=1e-3)


def every_output(length):
    """All outputs of FEW ids and at most `length` positions, the end included: `(outputs, tiny.M)`."""
    rows = []
    for n in range(length):
        rows += [[*ids, 1] for ids in itertools.product(range(2, FEW), repeat=n)]
    rows += list(itertools.product(range(2, FEW), repeat=length))
    return np.array([[*row, *[0] * (tiny.M - len(row))] for row in rows], "int32")


@once
@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 3.0])
def test_a_wide_beam_finds_the_best_of_all_outputs(length_penalty):
    model, batch, candidates = model_of_few_ids(), features_of_few_ids(rows=2), every_output(3)
    search = {"beams": len(candidates), "length_penalty": length_penalty, "max_length": 3}
    outputs = generate(model, TASK, inputs_of(batch, TASK), 6, **search)
    lengths = np.array([length_of(ids[:3]) for ids in candidates])
    for row in range(2):
        repeated = {name: np.repeat(array[row : row + 1], len(candidates), 0) for name, array in batch[TASK].items()}
        scored = log_probabilities(model, TASK, {TASK: repeated}, candidates)
        scores = np.array([score_of(*pair) for pair in zip(scored, [ids[:3] for ids in candidates], strict=True)])
        best = np.argsort(-scores / ((5 + lengths) / 6) ** length_penalty)[:6]
        np.testing.assert_array_equal(outputs["ids"][row], candidates[best])
        np.testing.assert_allclose(outputs["score"][row], scores[best], atol=1e-3)


@once
def test_a_longer_penalty_gives_longer_outputs():
    model, batch = model_of_few_ids(), features_of_few_ids(rows=20)
    means = []
    for alpha in (0.0, 5.0):
        ids = generate(model, TASK, inputs_of(batch, TASK), beams=4, length_penalty=alpha)["ids"][:, 0]
        means.append(np.mean([length_of(row) for row in ids]))
    assert means[0] < means[1]


@once
def test_beams_are_ordered_distinct_and_no_worse_than_greedy():
    model, batch = sharp_model(), tiny.features(rows=8)
    greedy = generate(model, TASK, inputs_of(batch, TASK))
    outputs = generate(model, TASK, inputs_of(batch, TASK), 4, beams=4, length_penalty=0.0)
    assert (np.diff(outputs["score"], axis=1) <= 0).all()
    assert all(len({tuple(ids) for ids in rows}) == 4 for rows in outputs["ids"])
    assert (outputs["score"][:, 0] >= greedy["score"][:, 0] - 1e-4).mean() >= 0.75  # a beam may lose the greedy one
    for row in range(8):
        scored = log_probabilities(model, TASK, batch, outputs["ids"][:, 1])
        assert outputs["score"][row, 1] == pytest.approx(score_of(scored[row], outputs["ids"][row, 1]), abs=1e-3)


def test_an_end_stops_a_row():
    """With all logits but two at zero, and these two opposite, every row writes twos until it ends."""
    model, batch = tiny.model(), tiny.features(rows=12)
    generators = [Generator(model, TASK), Generator(model, TASK, Search(beams=2, length_penalty=0.0))]
    lengths = set()
    for seed in range(10):
        kernel = np.zeros((tiny.DIM, tiny.VOCABULARY), "float32")
        kernel[:, 1] = 9 * np.random.default_rng(seed).normal(size=tiny.DIM)
        kernel[:, 2] = -kernel[:, 1]
        model.text_output.softmax.kernel.assign(kernel)
        for row in generators[0].predict_on_batch(inputs_of(batch, TASK))["ids"][:, 0].tolist():
            length = row.index(1) if 1 in row else tiny.M
            assert row == [2] * length + [1] * (length < tiny.M) + [0] * (tiny.M - length - 1)
            lengths.add(length)
        for row in generators[1].predict_on_batch(inputs_of(batch, TASK))["ids"][:, 0].tolist():
            assert not any(row[length_of(np.array(row)) :])  # what has ended is not written on
    assert len(lengths) > 2


@pytest.mark.parametrize("search", [{}, {"beams": 3}, {"temperature": 1.0}], ids=["greedy", "beam", "sampling"])
def test_rows_are_generated_independently(search):
    model, batch = sharp_model(), tiny.features()
    generator = Generator(model, TASK, Search(**search))
    together = generator.predict_on_batch(inputs_of(batch, TASK))
    for row in range(3):
        part = {name: array[row : row + 1] for name, array in inputs_of(batch, TASK).items()}
        np.testing.assert_array_equal(generator.predict_on_batch(part)["ids"][0], together["ids"][row])


@pytest.mark.parametrize("search", [{}, {"beams": 3}, {"temperature": 1.0}], ids=["greedy", "beam", "sampling"])
def test_lengths_keep_their_limits(search):
    model, batch = sharp_model(), tiny.features(rows=12)
    model.text_output.softmax.kernel.assign(0 * ops.convert_to_numpy(model.text_output.softmax.kernel))
    ids = generate(model, TASK, inputs_of(batch, TASK), min_length=2, max_length=4, **search)["ids"][:, 0]
    assert ids.shape == (12, tiny.M)
    assert not (ids[:, :2] == 1).any()
    assert not ids[:, 4].any()
    assert (ids[:, :2] > 1).all()


def drawn(model, features, **search):
    """Ids drawn first `(rows, 400)` for the same inputs."""
    return generate(model, TASK, features, 400, temperature=search.pop("temperature", 1.0), **search)["ids"][..., 0]


@once
def test_draws_follow_the_softmax():
    """Frequencies of 400 draws against probabilities at two temperatures, and the limits of top k and top p."""
    model, batch = model_of_few_ids(), features_of_few_ids(rows=2)
    features = inputs_of(batch, TASK)
    logits = ops.convert_to_numpy(model({TASK: batch[TASK]})[TASK])[:, 0]
    logits[:, 0] = -np.inf  # padding is never drawn
    for temperature in (0.5, 2.0):
        expected = np.exp(logits / temperature) / np.exp(logits / temperature).sum(-1, keepdims=True)
        for row, ids in enumerate(drawn(model, features, temperature=temperature)):
            share = np.bincount(ids, minlength=FEW) / 400
            assert np.abs(share - expected[row]).max() < 0.1
    expected = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    order = np.argsort(-expected, axis=-1)
    for row, ids in enumerate(drawn(model, features, top_k=3)):
        assert set(ids) <= set(order[row, :3])
        assert len(set(ids)) > 1
    for row, ids in enumerate(drawn(model, features, top_p=0.7)):
        kept = 1 + np.searchsorted(np.cumsum(expected[row, order[row]]), 0.7)
        assert set(ids) <= set(order[row, :kept])


def test_a_seed_gives_the_same_draws_and_scores_are_the_models():
    model, batch = sharp_model(), tiny.features()
    features = inputs_of(batch, TASK)
    first, again, other = (generate(model, TASK, features, 3, temperature=1.5, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first["ids"], again["ids"])
    assert (first["ids"] != other["ids"]).any()
    scored = log_probabilities(model, TASK, batch, first["ids"][:, 2])
    for row in range(3):
        assert first["score"][row, 2] == pytest.approx(score_of(scored[row], first["ids"][row, 2]), abs=1e-3)


def test_labels_are_chosen_from_the_encoder():
    model, batch = tiny.model(), tiny.features()
    outputs = Generator(model, "kinds", n_best=2).predict_on_batch(inputs_of(batch, "kinds"))
    logits = ops.convert_to_numpy(model({"kinds": batch["kinds"]})["kinds"])[:, 0]
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_array_equal(outputs["ids"][..., 0], np.argsort(-logits, axis=-1)[:, :2])
    np.testing.assert_allclose(outputs["probabilities"], probabilities, atol=1e-5)
    np.testing.assert_allclose(np.exp(outputs["score"]), -np.sort(-probabilities, axis=-1)[:, :2], atol=1e-5)


@pytest.mark.parametrize(
    "make",
    [
        lambda model: Generator(model, TASK, n_best=2),
        lambda model: Generator(model, TASK, Search(beams=2), n_best=3),
        lambda model: Generator(model, "kinds", n_best=4),
        lambda model: Generator(model, TASK, Search(temperature=1.0), n_best=0),
        lambda model: Search(beams=0),
        lambda model: Search(beams=2, temperature=1.0),
        lambda model: Search(top_k=3),
        lambda model: Search(temperature=1.0, top_p=0.0),
        lambda model: Search(min_length=3, max_length=3),
        lambda model: Search(length_penalty=float("nan")),
    ],
)
def test_what_cannot_be_searched_is_refused(make):
    with pytest.raises(UserError, match="Received: "):
        make(tiny.model())
