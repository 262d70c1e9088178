"""Loss weights that are learned: by hand, in a step, and saved by name."""

import keras
import numpy as np
import pytest
from keras import ops

from modality_nets import TextInputNet, TextOutputNet
from multimodel import Body, MultiModel
from multimodel.backend import compile_for_backend
from multimodel.model import LossWeight
from multimodel.training.adam import Adam
from multimodel.training.losses import SmoothedCrossEntropy
from tests.core.compiled import gradients
from tests.core.tiny import DIM, SIGNATURES, VOCABULARY, M, N


def a_weight(s):
    weight = LossWeight(dtype="float32")
    weight.build()
    weight.s.assign(s)
    return weight


def test_its_gradient_by_hand():
    """Of `exp(-s) L + s` at L = x^2: `2 x exp(-s)` in x, `1 - exp(-s) L` in s. Its value is L."""
    weight, x = a_weight(0.5), keras.Variable(3.0)

    def loss():
        return weight(ops.square(x))

    assert float(loss()) == pytest.approx(9, rel=1e-6)
    of_x, of_s = gradients(loss, [x, weight.s])
    assert float(of_x) == pytest.approx(6 * np.exp(-0.5), rel=1e-5)
    assert float(of_s) == pytest.approx(1 - 9 * np.exp(-0.5), rel=1e-5)
    assert weight.value() == pytest.approx(np.exp(-0.5), rel=1e-6)


def a_model(tasks=("german_english", "english_german"), learned=True, seed=0):
    keras.utils.set_random_seed(seed)
    nets = {"text_input": TextInputNet(VOCABULARY, DIM), "text_output": TextOutputNet(VOCABULARY, DIM)}
    signatures = [signature for signature in SIGNATURES if signature.task in tasks]
    model = MultiModel(signatures, Body.tiny(DIM, num_experts=1, dropout=0.0), nets, learned_loss_weights=learned)
    model.build()
    return model


def test_the_weight_of_a_loss_that_stays_tends_to_its_inverse():
    """In `fit`, with all else frozen and no noise among one expert. The losses that it logs are the plain ones."""
    model = a_model()
    for layer in model._flatten_layers(include_self=False):
        layer.trainable = isinstance(layer, LossWeight)
    loss = {task: SmoothedCrossEntropy(0.1, weight) for task, weight in model.loss_weights().items()}
    compile_for_backend(model, optimizer=Adam(0.1, beta_1=0.0, beta_2=0.9), loss=loss)
    random = np.random.default_rng(0)
    ids, y = ({task: random.integers(2, VOCABULARY, (2, n)) for task in model.signatures} for n in (N, M))
    y["english_german"][:] = y["english_german"][0, 0]
    x = {task: {"inputs": ids[task], "targets": y[task]} for task in model.signatures}
    logs = model.fit(x, y, batch_size=2, epochs=60, verbose=0).history
    weights = {task: weight.value() for task, weight in model.loss_weights().items()}
    for task, weight in weights.items():
        assert np.ptp(logs[f"{task}_loss"]) < 1e-4
        assert np.mean(logs[f"{task}_loss"]) > 1.5
        assert weight == pytest.approx(1 / np.mean(logs[f"{task}_loss"]), rel=0.02)


def test_they_are_saved_by_name_and_there_if_asked_for_alone(tmp_path):
    """A second task takes nothing from the first; a configuration without them gives a model without."""
    small, large = a_model(("german_english",)), a_model(seed=1)
    small.loss_weights()["german_english"].s.assign(0.7)
    small.save_weights(tmp_path / "model.weights.h5")
    large.load_weights(tmp_path / "model.weights.h5", skip_mismatch=True)
    values = {task: float(ops.convert_to_numpy(weight.s)) for task, weight in large.loss_weights().items()}
    assert values == {"german_english": pytest.approx(0.7), "english_german": 0}
    again = MultiModel.from_config(small.get_config())
    again.build()
    again.load_weights(tmp_path / "model.weights.h5")
    assert float(ops.convert_to_numpy(again.loss_weights()["german_english"].s)) == pytest.approx(0.7)
    plain = a_model(learned=False)
    assert plain.loss_weights() == {}
    assert large.count_params() - plain.count_params() == 2
    former = {name: value for name, value in plain.get_config().items() if name != "learned_loss_weights"}
    assert MultiModel.from_config(former).loss_weights() == {}
