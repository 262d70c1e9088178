"""What stays in float32 under the 16-bit policies: routers, softmax, norms, means and losses."""

import keras
import numpy as np
import pytest
from keras import ops

from modality_nets import LabelOutputNet
from multimodel.training.losses import SmoothedCrossEntropy
from tests.core.compiled import gradients
from tests.core.descriptors import BLOCKS, BODIES, DIM, NETS, arguments, call
from tests.core.test_cost import operations

POLICIES = {"mixed_float16": "float16", "mixed_bfloat16": "bfloat16"}
# What loses digits in sums, or leaves the range of float16 where its arguments do not.
DELICATE = {
    "tensorflow": "Exp Log Log1p Rsqrt Sqrt Square Softmax Softplus Erf Sum Mean Prod Cumsum SquaredDifference TopKV2",
    "jax": "exp log log1p rsqrt sqrt square integer_pow logistic erf reduce_sum cumsum top_k",
}
BACKEND = keras.backend.backend()


def traced(function, *arrays):
    """`[(name of an operation, dtypes of its arguments)]` of a function of arrays."""
    if BACKEND == "tensorflow":
        found = operations(function, *arrays)
        return [(op.type, [tensor.dtype.name for tensor in op.inputs]) for op in found]
    import jax

    return list(_equations(jax.make_jaxpr(function)(*arrays).jaxpr))


def _equations(jaxpr):
    import jax

    for equation in jaxpr.eqns:
        yield equation.primitive.name, [str(v.aval.dtype) for v in equation.invars if hasattr(v.aval, "dtype")]
        for inner in jax.tree.leaves(equation.params, is_leaf=lambda part: hasattr(part, "eqns")):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                yield from _equations(inner)


def of_16_bits(found, dtype):
    return {name for name, dtypes in found if dtype in dtypes}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("row", BLOCKS + BODIES[:1] + NETS, ids=lambda row: row.name)
def test_sums_and_exponentials_are_in_float32(row, policy):
    inputs, mask, context, context_mask = arguments(row)
    keras.config.set_dtype_policy(policy)
    try:
        layer = row.make()
    finally:
        keras.config.set_dtype_policy("float32")
    layer.build((None, None, DIM))

    def run(inputs):
        return call(layer, inputs, mask, context, context_mask, training=True)

    found = of_16_bits(traced(run, inputs), POLICIES[policy])
    assert not found & set(DELICATE[BACKEND].split())
    assert found, "the policy is not in force"


@pytest.mark.parametrize("dtype", POLICIES.values())
def test_losses_are_in_float32(dtype):
    def run(logits):
        return SmoothedCrossEntropy(0.1)(np.zeros((2, 3), "int32"), ops.cast(logits, dtype))

    found = traced(run, np.zeros((2, 3, 5), "float32"))
    assert {"Exp", "exp"} & {name for name, _ in found}
    assert not of_16_bits(found, dtype) & set(DELICATE[BACKEND].split())


def test_a_label_is_read_from_a_sum_beyond_float16():
    """Sixty-four positions of 2,000 each: their sum is 128,000, and float16 ends at 65,504."""
    net = LabelOutputNet(2, 4, hidden_dim=4, dtype="mixed_float16")
    net.build()
    for layer, value in ((net.hidden, 500.0), (net.classes, 0.25)):
        layer.kernel.assign(np.full(layer.kernel.shape, value))
    logits = net(np.ones((1, 64, 4), "float16"), mask=np.ones((1, 64), "bool"))
    np.testing.assert_allclose(ops.convert_to_numpy(logits), np.full((1, 1, 2), 2000), rtol=1e-3)


def test_small_gradients_of_a_loss_in_float16_are_not_lost():
    """A class of probability 1e-8, under the scale of the loss that Keras begins with."""
    logits = keras.Variable(np.array([[[0.0, np.log(1e-8)]]], "float16"), dtype="float16")
    scale = 2.0**15
    targets = np.zeros((1, 1), "int32")
    (gradient,) = gradients(lambda: scale * SmoothedCrossEntropy()(targets, logits + 0), [logits])
    assert float(gradient[0, 0, 1]) / scale == pytest.approx(1e-8, rel=0.01)
