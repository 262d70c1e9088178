"""Greedy generation equals what the whole model says, position by position."""

import numpy as np
import pytest
from keras import ops

from multimodel.generation.greedy import GreedyGenerator
from tests.core import tiny


def generate(model, task, features):
    return GreedyGenerator(model, task).predict_on_batch(features)


def inputs_of(batch, task):
    return {name: array for name, array in batch[task].items() if name != "targets"}


@pytest.mark.parametrize("task", ["captions", "speech", "english_german"])
def test_greedy_is_the_argmax_of_the_whole_model(task):
    """Each id is the most probable one after those before it, and the score is their log-probability."""
    model, batch = tiny.model(), tiny.features()
    model.text_output.softmax.kernel.assign(3 * model.text_output.softmax.kernel)  # ties would hide in rounding
    outputs = generate(model, task, inputs_of(batch, task))
    ids = outputs["ids"]
    logits = ops.convert_to_numpy(model({task: batch[task] | {"targets": ids}})[task])
    log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    for row in range(len(ids)):
        end = np.flatnonzero(ids[row] == 1)
        length = end[0] + 1 if len(end) else tiny.M
        np.testing.assert_array_equal(ids[row, :length], logits[row, :length].argmax(-1))
        assert not ids[row, length:].any()
        expected = log_probabilities[row, np.arange(length), ids[row, :length]].sum()
        assert outputs["score"][row] == pytest.approx(expected, abs=1e-3)


def test_an_end_stops_a_row():
    """With all logits but two at zero, and these two opposite, every row writes twos until it ends."""
    model, batch = tiny.model(), tiny.features(rows=12)
    generator = GreedyGenerator(model, "english_german")
    lengths = set()
    for seed in range(10):
        kernel = np.zeros((tiny.DIM, tiny.VOCABULARY), "float32")
        kernel[:, 1] = np.random.default_rng(seed).normal(size=tiny.DIM)
        kernel[:, 2] = -kernel[:, 1]
        model.text_output.softmax.kernel.assign(kernel)
        for row in generator.predict_on_batch(inputs_of(batch, "english_german"))["ids"].tolist():
            length = row.index(1) if 1 in row else tiny.M
            assert row == [2] * length + [1] * (length < tiny.M) + [0] * (tiny.M - length - 1)
            lengths.add(length)
    assert len(lengths) > 2


def test_rows_are_generated_independently():
    model, batch = tiny.model(), tiny.features()
    together = generate(model, "english_german", inputs_of(batch, "english_german"))
    for row in range(3):
        part = {name: array[row : row + 1] for name, array in inputs_of(batch, "english_german").items()}
        np.testing.assert_array_equal(generate(model, "english_german", part)["ids"][0], together["ids"][row])


def test_labels_are_chosen_from_the_encoder():
    model, batch = tiny.model(), tiny.features()
    outputs = generate(model, "kinds", inputs_of(batch, "kinds"))
    logits = ops.convert_to_numpy(model({"kinds": batch["kinds"]})["kinds"])
    np.testing.assert_array_equal(outputs["ids"], logits.argmax(-1))
    assert (outputs["score"] <= 0).all()
