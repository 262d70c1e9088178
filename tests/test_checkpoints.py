"""Checkpoint files: whole or not there, verified, kept."""

import contextlib
import resource

import keras
import numpy as np
import pytest

import multimodel as mm
from multimodel.training.checkpoints import KEEP, Checkpoints, NotFiniteError


def save(checkpoints, step, value=1.0, best=False):
    arrays = {"body/0": np.full((1000,), value, "float32"), "vocabulary/text": np.frombuffer(b"\x00words", "uint8")}
    checkpoints.save(step, arrays, {"history": {"step": step}, "much": [0.1 + 0.2]}, best)


@pytest.fixture
def checkpoints(tmp_path):
    return Checkpoints(tmp_path / "checkpoints")


def names(checkpoints):
    return sorted(file.name for file in checkpoints.folder.iterdir())


def refuse(text):
    raise AssertionError(text)


def test_what_is_saved_is_read(checkpoints):
    assert checkpoints.newest(refuse) is None
    save(checkpoints, 7, value=1 / 3)
    read = checkpoints.newest(refuse)
    assert (read.step, read.progress["much"], read.vocabularies) == (7, [0.1 + 0.2], {"text": b"\x00words"})
    np.testing.assert_array_equal(read.arrays["body/0"], np.full((1000,), 1 / 3, "float32"))


def test_the_newest_are_kept_and_the_best(checkpoints):
    for step in range(5):
        save(checkpoints, step, best=step == 1)
    assert names(checkpoints) == ["best.npz", *(f"step-{step:09}.npz" for step in range(5 - KEEP, 5))]
    assert checkpoints.best().step == 1


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "another"])
def test_a_damaged_one_is_set_aside_and_named(checkpoints, damage):
    save(checkpoints, 1)
    save(checkpoints, 2)
    newest = checkpoints.folder / "step-000000002.npz"
    content = bytearray(newest.read_bytes())
    content[2000] ^= 1
    newest.write_bytes({"cut": content[:3000], "changed": content, "empty": b"", "another": b"x" * 5000}[damage])
    warnings = []
    assert checkpoints.newest(warnings.append).step == 1
    assert len(warnings) == 1
    assert "step-000000002.npz is damaged" in warnings[0]
    assert names(checkpoints) == ["step-000000001.npz", "step-000000002.npz.damaged"]


def test_where_all_are_damaged_nothing_is_trained(checkpoints):
    save(checkpoints, 1)
    (checkpoints.folder / "step-000000001.npz").write_bytes(b"")
    for _ in range(2):  # the second time as the first: nothing was moved
        with pytest.raises(mm.UserError, match="all 1 are damaged"):
            checkpoints.newest(lambda text: None)


def test_an_average_that_was_not_kept_begins_at_its_weight(checkpoints):
    save(checkpoints, 1, value=3.0)
    average = "model_variables_moving_average/body/0"
    state = {name: keras.Variable(np.zeros(1000, "float32")) for name in ("body/0", average, "body/1")}
    checkpoints.newest(refuse).restore(state)
    assert [float(np.mean(variable)) for variable in state.values()] == [3, 3, 0]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_is_not_written(checkpoints, value):
    save(checkpoints, 1)
    with pytest.raises(NotFiniteError):
        save(checkpoints, 2, value=value)
    assert names(checkpoints) == ["step-000000001.npz"]


@contextlib.contextmanager
def files_of_at_most(size):
    """As on a full disk: writing beyond fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_the_last_one(checkpoints):
    save(checkpoints, 1)
    with files_of_at_most(2000), pytest.raises(OSError, match="too large"):
        save(checkpoints, 2)
    assert names(checkpoints) == ["step-000000001.npz"]
    assert checkpoints.newest(refuse).step == 1


def test_no_pickle_is_read(checkpoints):
    checkpoints.folder.mkdir()
    progress = np.frombuffer(b'{"history": {"step": 3}, "arrays": ["body/0"]}', "uint8")
    code = np.array([{"a": 1}], object)
    np.savez(checkpoints.folder / "step-000000003.npz", progress=progress, **{"body/0": code})
    with pytest.raises(ValueError, match="allow_pickle=False"):
        checkpoints.newest(refuse).arrays["body/0"]
