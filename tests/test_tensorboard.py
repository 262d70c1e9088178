"""The event files of a run: what they hold, and a disk that is full."""

import resource

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from multimodel.training.expert_map import EMPTY, FULL, ROW, expert_map
from multimodel.training.tensorboard import TensorBoardLog, scalars

RECORD = {
    "step": 50,
    "seconds": 30.0,
    "steps_per_second": 2.5,
    "loss": {"animals": 1.5, "captions": 3.25},
    "accuracy": {"animals": 0.5, "captions": 0.25},
    "examples": {"animals": 800, "captions": 400},
    "tokens": {"animals": 0, "captions": 1600},
    "epochs": {"animals": 0.4, "captions": 0.125},
    "padding": {"animals": {}, "captions": {"targets": 0.625}},
    "learning_rate": 0.002,
    "memory_mb": 1500.0,
    "expert_load": {
        "encoder_experts": {"animals": [0.25, 0.75], "captions": [0.5, 0.5]},
        "decoder_experts": {},
    },
}


def events(folder):
    found = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    found.Reload()
    return found


def test_scalars_by_hand():
    assert scalars(RECORD) == {
        "training/learning_rate": 0.002,
        "training/steps_per_second": 2.5,
        "training/memory_mb": 1500.0,
        "loss/animals": 1.5,
        "loss/captions": 3.25,
        "accuracy/animals": 0.5,
        "accuracy/captions": 0.25,
        "epochs/animals": 0.4,
        "epochs/captions": 0.125,
        "padding_of_targets/captions": 0.625,
    }


def test_each_record_is_there_once_it_is_written(tmp_path):
    log = TensorBoardLog(tmp_path / "tensorboard", pytest.fail)
    for step in (50, 100):
        log.interval(RECORD | {"step": step})
        found = events(tmp_path / "tensorboard")
        assert [event.step for event in found.Tensors("loss/captions")][-1] == step
    log.close()
    assert set(found.Tags()["tensors"]) == {*scalars(RECORD), "expert_load/encoder_experts"}
    width, height, png = tf.make_ndarray(found.Tensors("expert_load/encoder_experts")[0].tensor_proto)
    picture = tf.io.decode_png(png).numpy()
    assert picture.shape == (int(height), int(width), 3)
    np.testing.assert_array_equal(picture, expert_map(RECORD["expert_load"]["encoder_experts"]))


def test_a_map_by_hand():
    picture = expert_map({"a": [1, 0, 0, 0], "b": [0.25] * 4})
    cells = picture[ROW // 2 :: ROW, -96:][:, 12::24]  # the middle of each cell
    half = np.round((EMPTY + FULL) / 2)
    np.testing.assert_array_equal(cells, [[FULL, EMPTY, EMPTY, EMPTY], [half] * 4])


def test_a_training_that_goes_on_adds_to_what_is_there(tmp_path):
    for steps in (50, 100), (100, 150):
        log = TensorBoardLog(tmp_path, pytest.fail)
        for step in steps:
            log.interval(RECORD | {"step": step})
        log.close()
        log.close()
    # Files of one second are read in any order.
    assert sorted(event.step for event in events(tmp_path).Tensors("loss/animals")) == [50, 100, 100, 150]


def test_a_full_disk_is_told_once(tmp_path):
    """Here a limit of this process on the size of files, which fails a write as a full disk does."""
    told = []
    log = TensorBoardLog(tmp_path, told.append)
    log.interval(RECORD)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        for step in (100, 150):
            log.interval(RECORD | {"step": step})
        log.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(told) == 1
    assert told[0].startswith(f"TensorBoard's files cannot be written, and training goes on without: {tmp_path}")


def test_a_folder_that_cannot_be_made_is_told_once(tmp_path):
    (tmp_path / "file").write_text("")
    told = []
    log = TensorBoardLog(tmp_path / "file" / "tensorboard", told.append)
    log.interval(RECORD)
    log.interval(RECORD)
    log.close()
    assert len(told) == 1
