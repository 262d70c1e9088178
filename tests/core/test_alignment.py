"""The weights of attention that can be collected, and the alignment that is made of them."""

import keras
import numpy as np
import pytest
from keras import ops

from multimodel import Body
from multimodel.body import AttentionBlock, ConvBlock
from multimodel.body.attention import MultiHeadAttention, collect_attention
from multimodel.generation.alignment import Alignment, aligns
from tests.core import tiny
from tests.core.compiled import compiled
from tests.core.descriptors import randomize


def test_weights_are_the_softmax_of_scaled_products():
    """Against NumPy, head by head; the third source position is masked."""
    random = np.random.default_rng(0)
    layer = MultiHeadAttention(8, num_heads=2)
    layer.build()
    randomize(layer, 1)
    target, source = (random.normal(size=(1, length, 8)).astype("float32") for length in (4, 3))
    seen = np.array([True, True, False])
    with collect_attention() as weights:
        layer(target, source, seen)
    query, key = (
        (x[0] @ ops.convert_to_numpy(projection.kernel)).reshape(len(x[0]), 2, 4)
        for x, projection in ((target, layer.query), (source, layer.key))
    )
    scores = np.where(seen, np.einsum("mhw,nhw->hmn", query, key) / 2, -np.inf)
    expected = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(ops.convert_to_numpy(weights[layer])[0], expected, atol=1e-5)


def test_collecting_changes_no_number_and_ends_with_the_block():
    block = AttentionBlock(16)
    block.build()
    x, context = (np.random.default_rng(i).normal(size=(2, 5, 16)).astype("float32") for i in (0, 1))
    before = ops.convert_to_numpy(compiled(block)(x, context=context))
    with collect_attention() as weights:
        during = ops.convert_to_numpy(block(x, context=context))
    assert set(weights) == {block.self_attention, block.attention}
    weights.clear()
    compiled(block)(x, context=context)
    assert not weights
    np.testing.assert_allclose(during, before, atol=1e-6)


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("task", ["captions", "speech", "english_german"])
def test_rows_sum_to_one_over_what_is_real(task, precision):
    keras.config.set_dtype_policy(precision)
    try:
        model = tiny.model([s for s in tiny.SIGNATURES if s.task == task])
    finally:
        keras.config.set_dtype_policy("float32")
    outputs = Alignment(model, task).predict_on_batch(tiny.features()[task])
    weights, mask = outputs["weights"], outputs["mask"]
    encoded, real = model.encode({task: tiny.features()[task]})[task]
    assert weights.shape == (3, tiny.M, encoded.shape[1])
    assert weights.dtype == "float32"
    np.testing.assert_array_equal(mask, ops.convert_to_numpy(real))
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    assert not (weights * ~mask[:, None]).any()
    assert task == "captions" or not mask.all()
    assert weights.std(axis=1).max() > 1e-4  # positions look at different places


def test_labels_and_bodies_without_attention_have_none():
    model = tiny.model()
    assert aligns(model, "captions")
    assert not aligns(model, "kinds")
    with pytest.raises(ValueError, match="Received: task='kinds'"):
        Alignment(model, "kinds")
    blind = tiny.model(body=Body(tiny.DIM, [], [AttentionBlock(tiny.DIM)], [ConvBlock(tiny.DIM, True)]))
    assert not aligns(blind, "captions")
