"""How weights move: learning rates, gradients of several batches, averages of weights, the scale of float16 losses."""

import keras
import numpy as np
import pytest
from keras import ops

from multimodel.training.adam import Adam, adam_of
from multimodel.training.ema import averaged_weights, keep_averages
from multimodel.training.schedule import SCHEDULES
from tests.core.test_optimizer import a_net

IDS = np.array([[1, 2, 2, 7, 1], [3, 3, 0, 8, 2], [5, 1, 6, 7, 7], [0, 4, 4, 2, 8]])
TARGETS = np.random.default_rng(0).normal(size=(4, 5, 3)).astype("float32")


def a_compiled_net(rate=1e-2, policy="float32", **options):
    keras.config.set_dtype_policy(policy)
    try:
        net = a_net()
    finally:
        keras.config.set_dtype_policy("float32")
    net.compile(Adam(rate, 0.8, 0.9, 1e-6, **options), "mse", jit_compile=keras.backend.backend() == "jax")
    net.optimizer.build(net.trainable_variables)
    return net


def train(net, *batches):
    for rows in batches:
        net.train_on_batch(IDS[rows], TARGETS[rows])
    return net


@pytest.mark.parametrize(
    ("name", "rates"),
    [
        ("constant", {0: 0, 5: 1e-3, 10: 2e-3, 11: 2e-3, 39: 2e-3}),
        ("cosine", {0: 0, 5: 1e-3, 10: 2e-3, 25: 1e-3, 40: 0}),
        ("inverse_sqrt", {0: 0, 5: 1e-3, 10: 2e-3, 40: 1e-3, 1000: 2e-4}),
    ],
)
def test_schedules_by_hand(name, rates):
    """A peak of 2e-3 after 10 of 40 steps."""
    schedule = SCHEDULES[name](2e-3, 10, 40)
    again = keras.optimizers.schedules.deserialize(keras.optimizers.schedules.serialize(schedule))
    for step, rate in rates.items():
        for made in (schedule, again):
            assert float(made(step)) == pytest.approx(rate, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize(("name", "second"), [("constant", 2e-3), ("inverse_sqrt", 1e-3)])
def test_schedules_without_warm_up_begin_at_the_peak(name, second):
    schedule = SCHEDULES[name](2e-3, 0, 40)
    assert float(schedule(0)) == pytest.approx(2e-3, rel=1e-5)
    assert float(schedule(4)) == pytest.approx(second, rel=1e-5)


@pytest.mark.parametrize("clipnorm", [None, 1e-2], ids=["whole", "clipped"])
def test_accumulated_batches_are_one_batch_of_all(clipnorm):
    """Rounding alone differs. The norm that is clipped is that of the mean."""
    halves, whole = [slice(0, 2), slice(2, 4)], slice(0, 4)
    several = train(a_compiled_net(global_clipnorm=clipnorm, gradient_accumulation_steps=2), *halves * 3)
    one = train(a_compiled_net(global_clipnorm=clipnorm), *[whole] * 3)
    assert int(several.optimizer._iterations) == 6
    for ours, theirs, before in zip(several.get_weights(), one.get_weights(), a_net().get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
        assert np.abs(ours - before).max() > 1e-3


def test_nothing_moves_between_updates():
    net = a_compiled_net(gradient_accumulation_steps=3, use_ema=True, ema_momentum=0.9)
    before = net.get_weights()
    train(net, slice(0, 2), slice(2, 4))
    for ours, theirs in zip(net.get_weights(), before, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    train(net, slice(0, 4))
    assert all((ours != theirs).any() for ours, theirs in zip(net.get_weights(), before, strict=True))


def test_the_learning_rate_counts_batches():
    """A rate that falls from the third batch on makes the second update of two batches smaller."""
    falling = keras.optimizers.schedules.PiecewiseConstantDecay([2], [1e-2, 0.0])
    net = train(a_compiled_net(falling, gradient_accumulation_steps=2), slice(0, 2), slice(0, 2))
    after_one = net.get_weights()
    train(net, slice(0, 2), slice(0, 2))
    for ours, theirs in zip(net.get_weights(), after_one, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def averages_by_hand(weights, momentum):
    """The average after each of a list of weights."""
    average = weights[0]
    for update, weight in enumerate(weights):
        rate = 1 - min(momentum, update / (update + 9))
        average = average + rate * (weight - average)
    return average


@pytest.mark.parametrize("batches", [1, 2])
def test_averages_by_hand(batches):
    net = a_compiled_net(use_ema=True, ema_momentum=0.3, gradient_accumulation_steps=batches if batches > 1 else None)
    weights = []
    for _ in range(7):
        train(net, *[slice(0, 4)] * batches)
        weights.append(net.get_weights())
    with averaged_weights(net):
        averages = net.get_weights()
    for i, average in enumerate(averages):
        expected = averages_by_hand([of_update[i] for of_update in weights], 0.3)
        np.testing.assert_allclose(average, expected, rtol=1e-5, atol=1e-7)
        assert (average != weights[-1][i]).any()


def test_raw_weights_come_back_bit_for_bit():
    net = train(a_compiled_net(use_ema=True, ema_momentum=0.9), *[slice(0, 4)] * 3)
    raw = net.get_weights()
    with pytest.raises(KeyboardInterrupt), averaged_weights(net):
        averages = net.get_weights()
        net.predict_on_batch(IDS)  # JAX gives away the arrays of what it calls
        raise KeyboardInterrupt
    for ours, before, average in zip(net.get_weights(), raw, averages, strict=True):
        assert ours.tobytes() == before.tobytes() != average.tobytes()
    keep_averages(net)
    for ours, average in zip(net.get_weights(), averages, strict=True):
        assert ours.tobytes() == average.tobytes()
    train(net, slice(0, 4))  # and it goes on


def test_without_averages_nothing_is_done():
    net = train(a_compiled_net(), slice(0, 4))
    raw = net.get_weights()
    with averaged_weights(net):
        assert all((ours == theirs).all() for ours, theirs in zip(net.get_weights(), raw, strict=True))


def test_averages_in_a_callback_leave_training_as_it_is():
    """`fit` with a look at the averages at each step, and without: the same weights, raw at the end."""

    class Look(keras.callbacks.Callback):
        seen = 0

        def on_train_batch_end(self, batch, logs=None):
            before = self.model.get_weights()
            with averaged_weights(self.model):
                self.model.predict_on_batch(IDS)
                self.seen += int(batch > 0 and (self.model.get_weights()[0] != before[0]).any())

    look = Look()
    weights = []
    for callbacks in ([], [look]):
        net = a_compiled_net(use_ema=True, ema_momentum=0.9)
        net.fit(IDS, TARGETS, batch_size=1, shuffle=False, verbose=0, callbacks=callbacks)
        weights.append(net.get_weights())
    assert look.seen == 3
    for ours, theirs in zip(*weights, strict=True):
        assert ours.tobytes() == theirs.tobytes()


def test_clipping_in_float16_sees_gradients_without_the_scale():
    """Weights move as in float32, clipped to a norm that the scaled gradients are far above."""
    nets = [a_compiled_net(policy=policy, global_clipnorm=1e-2) for policy in ("float32", "mixed_float16")]
    assert isinstance(nets[1].optimizer, keras.optimizers.LossScaleOptimizer)
    assert adam_of(nets[1]).global_clipnorm == 1e-2
    start = nets[0].get_weights()
    for net in nets:
        train(net, *[slice(0, 4)] * 3)
    for single, half, before in zip(*(net.get_weights() for net in nets), start, strict=True):
        moved = np.abs(single - before).max()
        assert moved > 1e-3
        np.testing.assert_allclose(half, single, rtol=0, atol=0.2 * moved)


def test_a_step_whose_gradient_overflows_halves_the_scale_and_moves_nothing():
    net = a_compiled_net(policy="mixed_float16", use_ema=True, ema_momentum=0.9)
    train(net, slice(0, 4))
    before, scale = net.get_weights(), float(ops.convert_to_numpy(net.optimizer.dynamic_scale))
    net.train_on_batch(IDS, np.full((4, 5, 3), 1e30, "float32"))
    assert float(ops.convert_to_numpy(net.optimizer.dynamic_scale)) == scale / 2
    for ours, theirs in zip(net.get_weights(), before, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    with averaged_weights(net):
        assert all(np.isfinite(values).all() for values in net.get_weights())
