"""Learning rates, by hand."""

import keras
import pytest

import multimodel as mm
from multimodel.training.schedule import DECAY, ExponentialTail


def rate(schedule, step):
    return float(schedule(step))


def test_exponential_tail():
    schedule = ExponentialTail(1e-4, 3000, 1_000_000)
    assert rate(schedule, 0) == pytest.approx(1e-6, rel=1e-5)
    assert rate(schedule, 1500) == pytest.approx(1e-5, rel=1e-5)  # half way in the exponent
    assert rate(schedule, 3000) == rate(schedule, 500_000) == pytest.approx(1e-4, rel=1e-6)
    assert rate(schedule, 600_000) == pytest.approx(1e-4 * DECAY**100_000, rel=1e-4)
    assert rate(schedule, 1_000_000) == pytest.approx(1.05e-5, rel=0.01)


def test_a_short_run_keeps_its_peak():
    schedule = ExponentialTail(1e-4, 5, 10)
    assert rate(schedule, 5) == pytest.approx(1e-4, rel=1e-6)
    assert rate(schedule, 10) == pytest.approx(1e-4, rel=1e-4)


def test_without_warm_up_it_begins_at_its_peak():
    assert rate(ExponentialTail(1e-4, 0, 10), 0) == pytest.approx(1e-4, rel=1e-6)


def test_a_schedule_goes_through_its_configuration():
    schedule = ExponentialTail(1e-4, 3000, 1_000_000)
    again = keras.optimizers.schedules.deserialize(keras.optimizers.schedules.serialize(schedule))
    assert rate(again, 1234) == rate(schedule, 1234)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"schedule": "cosinus"}, "Unknown schedule. Received: schedule='cosinus'. Did you mean 'cosine'"),
        ({"betas": (0.9, 1.0)}, r"Received: betas=\(0.9, 1.0\)"),
        ({"betas": (0.9,)}, r"Received: betas=\(0.9,\)"),
        ({"epsilon": -1}, "Received: epsilon=-1"),
        ({"loss_weights": {"colour": 2.0}}, "Unknown task. Received: task='colour'. Did you mean 'colours'"),
        ({"loss_weights": {"colours": -2.0}}, "Received: -2.0 for task 'colours'"),
    ],
)
def test_wrong_settings_are_named(setting, message):
    import dataclasses

    from tests import tiny_recipe

    with pytest.raises(mm.UserError, match=message):
        dataclasses.replace(tiny_recipe.recipe(), **setting)


def test_settings_reach_the_optimizer(tmp_path):
    import dataclasses

    from multimodel.training.console import Reporter
    from multimodel.training.prepare import prepare
    from tests import tiny_recipe

    changes = {"schedule": "exponential_tail", "betas": (0.85, 0.997), "epsilon": 1e-6, "loss_weights": {"upper": 0.0}}
    recipe = dataclasses.replace(tiny_recipe.recipe(), **changes)
    _, batches, bundle, _ = prepare(recipe, "float32", "auto", Reporter(quiet=True))
    optimizer = bundle.model.optimizer
    assert (optimizer.beta_1, optimizer.beta_2, optimizer.epsilon) == (0.85, 0.997, 1e-6)
    assert isinstance(optimizer._learning_rate, ExponentialTail)
    logs = bundle.model.test_on_batch(*batches[0], return_dict=True)
    weighted = logs["colours_loss"] + logs["captions_loss"]
    assert logs["upper_loss"] > 0
    assert logs["loss"] == pytest.approx(weighted, rel=1e-4)
