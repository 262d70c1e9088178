"""Adam, the loss and the norm against Keras' own."""

import keras
import numpy as np
import pytest
from keras import ops

from multimodel.body.moe import Experts
from multimodel.body.norm import LayerNorm
from multimodel.training import losses
from multimodel.training.adam import Adam
from multimodel.training.losses import SmoothedCrossEntropy
from tests.core.compiled import gradients


class Lookup(keras.layers.Layer):
    """Rows of a table: by a lookup, whose gradient is sparse on TensorFlow, or by a product with one-hot vectors."""

    def __init__(self, sparse=True, **kwargs):
        super().__init__(**kwargs)
        self.sparse = sparse

    def build(self, shape):
        self.table = self.add_weight(shape=(9, 4), initializer="random_normal")

    def call(self, ids):
        ids = ops.cast(ids, "int32")
        return ops.take(self.table, ids, axis=0) if self.sparse else ops.matmul(ops.one_hot(ids, 9), self.table)


def a_net(sparse=True):
    keras.utils.set_random_seed(0)
    net = keras.Sequential([Lookup(sparse), keras.layers.Dense(3)])
    net.build((None, 5))
    return net


@pytest.mark.parametrize("clipnorm", [None, 1e-3, 1e3])
def test_adam_is_that_of_keras(clipnorm):
    """That is, of dense gradients. Keras squares the sparse ones of a row that is looked up twice one by one, and
    takes their norm so, on TensorFlow."""
    weights = []
    for kind, sparse in ((keras.optimizers.Adam, False), (Adam, False), (Adam, True)):
        net = a_net(sparse)
        net.compile(kind(1e-2, 0.8, 0.9, 1e-6, global_clipnorm=clipnorm), "mse")
        for _ in range(4):
            net.train_on_batch(np.array([[1, 2, 2, 7, 1]]), np.ones((1, 5, 3), "float32"))
        weights.append(net.get_weights())
    for theirs, *ours in zip(*weights, strict=True):
        for values in ours:
            np.testing.assert_allclose(values, theirs, rtol=1e-5, atol=1e-6)


def test_a_gradient_that_is_not_finite_is_not_hidden_by_clipping():
    net = a_net()
    net.compile(Adam(1e-2, global_clipnorm=1.0), "mse")
    net.train_on_batch(np.array([[1, 2, 2, 7, 1]]), np.full((1, 5, 3), np.inf, "float32"))
    assert all(np.isnan(values).any() for values in net.get_weights())


def test_adam_comes_back_from_its_configuration():
    optimizer = Adam(1e-2, lazy_experts=True, global_clipnorm=2.0)
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert isinstance(again, Adam)
    assert again.lazy_experts
    assert again.global_clipnorm == 2.0


def test_adam_refuses_what_its_kernel_does_not_know():
    with pytest.raises(ValueError, match="amsgrad=True"):
        Adam(1e-2, amsgrad=True)


class FirstExpertsAlone(keras.layers.Layer):
    """Experts of which only the first two get tokens, and a dense layer."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.experts = Experts(5, 4, 4, name="experts")
        self.dense = keras.layers.Dense(4)

    def build(self, shape):
        self.experts.build()
        self.dense.build(shape)

    def call(self, x):
        chosen = np.tile(np.array([[0], [1]], "int32"), (3, 1))
        return self.dense(self.experts(x, np.ones((6, 1), "float32"), chosen))


@pytest.mark.parametrize("lazy", [True, False])
def test_lazy_adam_leaves_idle_experts_alone(lazy):
    """An expert that was used before has moments that go on moving it, unless Adam is lazy."""
    keras.utils.set_random_seed(0)
    net = keras.Sequential([FirstExpertsAlone()])
    net.build((6, 4))
    optimizer = Adam(1e-2, lazy_experts=lazy)
    net.compile(optimizer, "mse", jit_compile=keras.backend.backend() == "jax")
    optimizer.build(net.trainable_variables)
    for moment in optimizer._momentums:
        moment.assign(ops.ones(moment.shape))
    x, y = np.random.default_rng(0).normal(size=(2, 6, 4)).astype("float32")
    before = [ops.convert_to_numpy(v) for v in net.trainable_variables]
    net.train_on_batch(x, y)
    if keras.backend.backend() == "jax":
        net.jax_state_sync()
    paths = [v.path for v in net.trainable_variables]
    for path, old, new, moment in zip(paths, before, net.get_weights(), optimizer._momentums, strict=True):
        moved = np.any(new != old, axis=tuple(range(1, new.ndim)))
        if "experts/" in path:
            assert moved.tolist() == [True, True, *[not lazy] * 3], path
            assert (ops.convert_to_numpy(moment)[2:] == 1).all() == lazy, path
        else:
            assert moved.all(), path


def test_lazy_adam_moves_used_experts_as_adam_does():
    weights = []
    for lazy in (True, False):
        keras.utils.set_random_seed(0)
        net = keras.Sequential([FirstExpertsAlone()])
        net.build((6, 4))
        net.compile(Adam(1e-2, lazy_experts=lazy), "mse", jit_compile=keras.backend.backend() == "jax")
        x, y = np.random.default_rng(0).normal(size=(2, 6, 4)).astype("float32")
        for _ in range(3):
            net.train_on_batch(x, y)
        weights.append(net.get_weights())
    for ours, theirs in zip(*weights, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_norm_is_that_of_keras(dtype):
    random = np.random.default_rng(0)
    policy = "float32" if dtype == "float32" else "mixed_bfloat16"
    layers = LayerNorm(dtype=policy), keras.layers.LayerNormalization(epsilon=1e-6, dtype=policy)
    x, upstream = (ops.cast(3 + random.normal(size=(2, 5, 8)), dtype) for _ in range(2))
    # values that bfloat16 holds exactly, since Keras rounds its weights to it
    weights = np.array([0.5, 1, -2, 1.5, 0, 4, 1, 1], "float32"), np.array([0, 1, 2, 3, -1, 0.25, 0, 0], "float32")
    results = []
    for layer in layers:
        layer.build(x.shape)
        layer.set_weights(weights)
        moved = keras.Variable(ops.cast(x, "float32"))

        def loss(layer=layer, moved=moved):
            y = layer(ops.cast(ops.convert_to_tensor(moved), dtype))
            return ops.sum(ops.cast(y * upstream, "float32"))

        y = ops.convert_to_numpy(ops.cast(layer(x), "float32"))
        results.append([y, *gradients(loss, [moved, *layer.trainable_variables])])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(
            ours, theirs, rtol=0, atol=(1e-5 if dtype == "float32" else 0.05) * np.abs(theirs).max()
        )


@pytest.mark.parametrize("at_once", [losses.AT_ONCE, 40, 1], ids=["whole", "some rows", "row by row"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_loss_and_its_gradient_in_parts(at_once, smoothing, monkeypatch):
    """Against the definition, and the gradient that the backend derives of it."""
    monkeypatch.setattr(losses, "AT_ONCE", at_once)
    random = np.random.default_rng(0)
    targets, weights = random.integers(0, 7, (6, 3)), random.uniform(size=(6, 3)).astype("float32")
    logits = keras.Variable((5 * random.normal(size=(6, 3, 7))).astype("float32"))
    wanted = np.eye(7, dtype="float32")[targets] * (1 - smoothing - smoothing / 6) + smoothing / 6

    def ours():
        return SmoothedCrossEntropy(smoothing)(targets, logits + 0, sample_weight=weights)

    def defined():
        nats = -ops.sum(wanted * ops.log_softmax(ops.convert_to_tensor(logits)), axis=-1)
        return ops.sum(nats * weights) / weights.sum()

    assert float(ours()) == pytest.approx(float(defined()), rel=1e-5)
    (actual,), (expected,) = (gradients(loss, [logits]) for loss in (ours, defined))
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-7)


def test_the_loss_keeps_the_dtype_of_logits_in_their_gradient():
    logits = keras.Variable(np.zeros((2, 3, 5)), dtype="bfloat16")
    (gradient,) = gradients(lambda: SmoothedCrossEntropy(0.1)(np.zeros((2, 3)), logits + 0), [logits])
    assert gradient.dtype == logits.dtype
