"""Augmentation: a function of seed and step, of its own for each example, and only in training."""

import dataclasses

import keras
import numpy as np
import pytest

import multimodel as mm
from multimodel import Mixture, Task, UserError
from multimodel.tasks import ArraySource, Audio, Image, Label, SpecAugment
from multimodel.tasks.augmentation import Augmentation
from multimodel.tasks.batches import MixedBatches
from multimodel.tasks.encoded import encode_examples
from tests import tiny_recipe

LABEL = Label("label", ("a",))


def picture_task(*layers):
    random = np.random.default_rng(0)
    picture = random.integers(0, 256, (12, 12, 3), "uint8")
    columns = {"image": [picture] * 8, "label": ["a"] * 8}
    return Task("pictures", ArraySource({"train": columns}), Image("image", 12, 12), LABEL, augmentation=layers)


def clip_task(*layers):
    return Task("clips", None, Audio("audio", 8000, 0.1), LABEL, augmentation=layers)


def pictures(task, seed=1):
    return MixedBatches({"pictures": task}, {"pictures": encode_examples(task, "train")}, {"pictures": 8}, 9, seed)


LAYERS = {
    "flip": lambda: [keras.layers.RandomFlip("horizontal")],
    "crop": lambda: [keras.layers.Resizing(16, 16), keras.layers.RandomCrop(12, 12)],
    "RandAugment": lambda: [keras.layers.RandAugment(factor=0.5)],
    "several": lambda: [keras.layers.RandomFlip(), keras.layers.RandomBrightness(0.3)],
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_batch_is_a_function_of_seed_and_step(name):
    """Also in another process, or after other batches, and whatever seeds the layers were made with."""
    made = pictures(picture_task(*LAYERS[name]()))
    forward = [made[step][0]["pictures"]["inputs"] for step in range(3)]
    again = pictures(picture_task(*LAYERS[name]()))
    backward = [again[step][0]["pictures"]["inputs"] for step in (2, 1, 0)][::-1]
    np.testing.assert_array_equal(forward, backward)
    assert forward[0].dtype == np.uint8
    assert not np.array_equal(forward[0], forward[1])
    other = pictures(picture_task(*LAYERS[name]()), seed=2)
    assert not np.array_equal(forward, [other[step][0]["pictures"]["inputs"] for step in range(3)])


@pytest.mark.parametrize("name", LAYERS)
def test_each_example_has_a_change_of_its_own(name):
    """Keras would crop a whole batch alike."""
    inputs = np.concatenate([pictures(picture_task(*LAYERS[name]()))[step][0]["pictures"]["inputs"] for step in (0, 1)])
    assert len({image.tobytes() for image in inputs}) > 1


def test_values_stay_in_range():
    task = picture_task(keras.layers.RandomBrightness((0.9, 1.0)))
    inputs = pictures(task)[0][0]["pictures"]["inputs"]
    assert inputs.min() > 200  # clipped at 255, not wrapped around


def test_time_and_frequency_are_masked():
    wave = (np.sin(np.arange(800) * 2 * np.pi * 1000 / 8000) * 20000).astype("int16")
    times = Augmentation(clip_task(SpecAugment(frequency_masks=0, max_time=0.5)))
    silent = [np.mean(times(wave[None], 1, step)[0, 1::4] == 0) for step in range(40)]
    assert 0 < np.mean(silent) < 0.5
    assert max(silent) <= 0.51
    kept = times(wave[None], 1, 3)[0]
    np.testing.assert_array_equal(kept[kept != 0], wave[kept != 0])
    bands = Augmentation(clip_task(SpecAugment(time_masks=0, max_frequency=0.5)))
    loudness = [np.abs(bands(wave[None], 1, step).astype(float)).max() for step in range(40)]
    assert min(loudness) < 100  # the tone is inside the band
    assert sum(value > 19000 for value in loudness) > 5  # or outside
    both = Augmentation(clip_task(SpecAugment()))
    assert both(np.stack([wave, wave]), 1, 1).shape == (2, 800)


def test_spec_augment_is_a_keras_layer():
    layer = SpecAugment(time_masks=2, max_time=0.2, seed=7)
    again = keras.layers.deserialize(keras.layers.serialize(layer), custom_objects={"SpecAugment": SpecAugment})
    assert again.get_config() == layer.get_config()
    x = np.ones((2, 100), "float32")
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(layer(x, training=False)), x)
    assert not np.array_equal(keras.ops.convert_to_numpy(layer(x, training=True)), x)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([keras.layers.RandomCrop(8, 8)], r"keeps the shape of inputs. Received: \(12, 12, 3\) in and \(8, 8, 3\) out"),
        ([keras.layers.Dense(3), keras.layers.Conv1D(3, 99)], "which failed"),
    ],
)
def test_a_layer_that_does_not_fit_is_named(layers, message):
    with pytest.raises(UserError, match=message):
        Augmentation(picture_task(*layers))


def test_evaluation_is_not_augmented(tmp_path):
    """A layer that paints every picture black: what is scored is not black, and what was trained on was."""
    black = keras.layers.RandomBrightness((-1.0, -1.0))
    recipe = tiny_recipe.recipe()
    colours = dataclasses.replace(recipe.mixture.tasks["colours"], augmentation=(black,))
    recipe = dataclasses.replace(recipe, mixture=Mixture({colours: 1}), nets={}, steps=2)
    seen = []
    original = MixedBatches.__getitem__
    try:
        MixedBatches.__getitem__ = lambda self, step: seen.append(original(self, step)) or seen[-1]
        bundle = mm.train(recipe, tmp_path / "run")
    finally:
        MixedBatches.__getitem__ = original
    assert max(x["colours"]["inputs"].max() for x, _, _ in seen) == 0
    red = np.full((8, 8, 3), (255, 0, 0), "uint8")
    scores = {prediction.score for prediction in bundle.try_predict("colours", [red, np.zeros((8, 8, 3), "uint8")])}
    assert len(scores) == 2
