"""MultiModel: sharing, grouping, subsets of tasks, saving, and joint training."""

import keras
import numpy as np
import pytest
from keras import ops

from multimodel import Body, MultiModel, Signature
from multimodel.body import Block, MoEBlock
from tests.core import tiny


def arrays(outputs):
    return {task: ops.convert_to_numpy(logits) for task, logits in outputs.items()}


def test_logits_have_the_shape_of_their_signature():
    outputs = arrays(tiny.model()(tiny.features()))
    for signature in tiny.SIGNATURES:
        assert outputs[signature.task].shape == (3, signature.target_length, signature.num_classes)


def test_any_subset_of_tasks_gives_the_same_numbers():
    """Tasks that share a pass through the body do not see each other."""
    model, batch = tiny.model(), tiny.features()
    together = arrays(model(batch))
    for task, values in batch.items():
        alone = arrays(model({task: values}))
        np.testing.assert_allclose(alone[task], together[task], rtol=0, atol=1e-4)


def test_rows_of_a_batch_do_not_see_each_other():
    model, batch = tiny.model(), tiny.features()
    together = arrays(model(batch))
    first = {task: {name: array[:1] for name, array in values.items()} for task, values in batch.items()}
    for task, logits in arrays(model(first)).items():
        np.testing.assert_allclose(logits, together[task][:1], rtol=0, atol=1e-4)


def test_a_target_changes_nothing_up_to_itself():
    model, batch = tiny.model(), tiny.features()
    batch["captions"]["targets"] = np.full((3, tiny.M), 7, "int32")
    before = arrays(model(batch))["captions"]
    for t in range(tiny.M):
        changed = {"captions": batch["captions"] | {"targets": batch["captions"]["targets"].copy()}}
        changed["captions"]["targets"][:, t] = 9
        after = arrays(model(changed))["captions"]
        np.testing.assert_allclose(after[:, : t + 1], before[:, : t + 1], rtol=0, atol=1e-4)


def test_equal_lengths_share_one_pass(monkeypatch):
    """A convolution sees each group once, experts see all groups at once."""
    model, calls = tiny.model(), {}

    def watched(block, call):
        def watch(x, **arguments):
            calls.setdefault(block.name, []).append(tuple(x.shape))
            return call(x, **arguments)

        return watch

    for block in (*model.body.encoder, *model.body.mixer, *model.body.decoder):
        monkeypatch.setattr(block, "call", watched(block, block.call))
    model(tiny.features())
    # Pictures give 16 and 32 vectors, clips 8, and both directions of text 8.
    assert sorted(calls["encoder_conv0"]) == [(3, 16, 16), (3, 32, 16), (9, 8, 16)]
    assert [shape[:2] for shape in calls["encoder_experts"]] == [(1, 3 * 32 + 3 * 16 + 9 * 8)]
    assert sorted(shape[0] for shape in calls["decoder_conv0"]) == [3, 9]
    assert [shape[:2] for shape in calls["decoder_experts"]] == [(1, 12 * tiny.M)]


def test_label_tasks_leave_mixer_and_decoder_alone():
    model = tiny.model()
    model.body.decode = None
    model({"kinds": tiny.features()["kinds"]})


def test_a_translation_task_adds_one_command_vector():
    french = tiny.signature("english_french", "text", (tiny.N,), "int32", "french")
    before, after = tiny.model(), tiny.model([*tiny.SIGNATURES, french])
    assert after.count_params() - before.count_params() == tiny.DIM
    again = tiny.signature("french_german", "text", (tiny.N,), "int32", "german")
    assert tiny.model([*tiny.SIGNATURES, again]).count_params() == before.count_params()


def test_a_new_task_does_not_move_the_weights_of_the_others(tmp_path):
    """Weights are found by the names of their parts, whatever is added before or between them."""
    small = tiny.model(tiny.SIGNATURES[3:])
    small.save_weights(tmp_path / "part.weights.h5")
    large = tiny.model(seed=1)
    before = {path: ops.convert_to_numpy(value) for path, value in weights(large).items()}
    large.load_weights(tmp_path / "part.weights.h5", skip_mismatch=True)
    for path, value in weights(large).items():
        source = weights(small).get(path)
        expected = before[path] if source is None else ops.convert_to_numpy(source)
        np.testing.assert_array_equal(ops.convert_to_numpy(value), expected, err_msg=path)


def weights(model):
    parts = {"body": model.body} | {name: getattr(model, name) for name in model.part_names()}
    return {
        f"{name}/{i}": weight
        for name, part in parts.items()
        for i, weight in enumerate(sorted(part.trainable_weights, key=lambda w: w.path))
    }


def test_save_and_load(tmp_path):
    model, batch = tiny.model(), tiny.features()
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    for task, logits in arrays(again(batch)).items():
        np.testing.assert_array_equal(logits, arrays(model(batch))[task])


def test_a_missing_net_is_named():
    with pytest.raises(ValueError, match=r"no 'text_output' for task 'captions'"):
        MultiModel([tiny.SIGNATURES[1]], Body.small(tiny.DIM), {"image_input": None})


def test_signature_goes_through_json():
    for signature in tiny.SIGNATURES:
        assert Signature.from_json(signature.to_json()) == signature


def test_no_mask_hangs_on_logits():
    """Keras would multiply losses by it."""
    for logits in tiny.model()(tiny.features()).values():
        assert getattr(logits, "_keras_mask", None) is None


def test_balance_is_added_once_a_layer_over_all_tasks():
    model = tiny.model()
    model(tiny.features(), training=True)
    assert len(model.losses) == 2
    model(tiny.features())
    assert not model.losses


def test_joint_fit_learns_every_task():
    """Forty steps on one batch bring every loss down; with a rate of 1e-2 some run ends on a spike."""
    keras.utils.set_random_seed(0)
    model, x = tiny.model(), tiny.features()
    for row, image in enumerate(x["kinds"]["inputs"]):
        image[:] = 120 * row  # pictures that even a tiny net tells apart
    y = {task: values.get("targets", np.array([[0], [1], [2]])) for task, values in x.items()}
    w = {
        task: (targets > 0).astype("float32") if "targets" in x[task] else np.ones((3, 1))
        for task, targets in y.items()
    }
    model.compile(
        keras.optimizers.Adam(3e-3),
        loss={
            task: keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight")
            for task in x
        },
        jit_compile=keras.backend.backend() == "jax",
    )
    first = model.train_on_batch(x, y, w, return_dict=True)
    for _ in range(40):
        model.reset_metrics()
        last = model.train_on_batch(x, y, w, return_dict=True)
    for task in x:
        assert last[f"{task}_loss"] < 0.6 * first[f"{task}_loss"], task


def test_expert_load_is_counted_by_task():
    """Tasks in groups of their own and in one group, and one whose rows are all padding."""
    model, batch = tiny.model(), tiny.features()
    for name in ("inputs", "targets", "inputs_mask"):
        batch["german_english"][name] = np.zeros_like(batch["german_english"][name])
    model(batch, training=True)
    _, clip_mask = model.audio_input(batch["speech"]["inputs"], mask=batch["speech"]["inputs_mask"])
    real = {
        "kinds": 3 * 16,
        "captions": 3 * 32,
        "speech": int(ops.convert_to_numpy(clip_mask).sum()),
        "english_german": int(batch["english_german"]["inputs_mask"].sum()),
        "german_english": 0,
    }
    top_k = model.body.encoder[1].top_k
    totals = ops.convert_to_numpy(model.expert_load.counts["encoder_experts"]).sum(1)
    np.testing.assert_array_equal(totals, [top_k * real[task] for task in model.signatures])
    written = [int((batch[task]["targets"] > 0).sum()) if "targets" in batch[task] else 0 for task in model.signatures]
    totals = ops.convert_to_numpy(model.expert_load.counts["decoder_experts"]).sum(1)
    np.testing.assert_array_equal(totals, top_k * np.array(written))
    assert list(model.expert_load.shares()["encoder_experts"]) == ["kinds", "captions", "speech", "english_german"]
    model(batch)
    np.testing.assert_array_equal(ops.convert_to_numpy(model.expert_load.counts["decoder_experts"]).sum(1), totals)
    model.expert_load.reset()
    assert not model.expert_load.shares()["encoder_experts"]


def test_expert_load_is_no_weight_and_exact_in_bfloat16():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = tiny.model()
    finally:
        keras.config.set_dtype_policy("float32")
    counts = model.expert_load.counts["encoder_experts"]
    assert all(counts is not weight for weight in model.weights)
    assert any(counts is variable for variable in model.variables)
    counts.assign(np.full(counts.shape, 1001.0))
    batch = {"kinds": tiny.features()["kinds"]}
    model(batch, training=True)
    added = ops.convert_to_numpy(counts) - 1001
    assert added.sum() == 3 * 16 * model.body.encoder[1].top_k


@keras.saving.register_keras_serializable("tests")
class Nested(Block):
    """A block of a user's own, with experts within."""

    def __init__(self, dim, **kwargs):
        super().__init__(**kwargs)
        self.inner = MoEBlock(dim)

    def build(self, *shapes, **kwargs):
        self.inner.build((None, None, self.inner.dim))
        self.built = True

    def call(self, x, mask=None, context=None, context_mask=None, training=False):
        return self.inner(x, mask=mask, training=training)


def test_experts_within_a_block_of_ones_own():
    body = Body.small(tiny.DIM)
    model = tiny.model(body=Body(tiny.DIM, [*body.encoder, Nested(tiny.DIM)], body.mixer, body.decoder))
    outputs = arrays(model(tiny.features(), training=True))
    assert all(np.isfinite(logits).all() for logits in outputs.values())
    assert len(model.losses) == 3
