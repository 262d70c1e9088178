"""Losses that are no numbers or blow up, full disks, and the end of patience."""

import contextlib
import errno
import json
import pathlib
import subprocess
import sys
import time

import numpy as np
import pytest

import multimodel as mm
from multimodel.tasks.batches import MixedBatches
from multimodel.training import recovery, resume
from multimodel.training.checkpoints import Checkpoints, NotFiniteError
from multimodel.training.recovery import FaultError, Guard, Recovery
from tests import tiny_recipe

ROOT = pathlib.Path(__file__).parent.parent


def read(file):
    return json.loads(pathlib.Path(file).read_text())


@pytest.fixture
def plant(monkeypatch):
    """`plant(change, batches)` changes `(x, y, w)` of a task in some batches before training sees them."""
    real = MixedBatches.__getitem__

    def plants(change, numbers):
        def changed(self, number):
            batch = real(self, number)
            if number in numbers:
                change(*batch)
            return batch

        monkeypatch.setattr(MixedBatches, "__getitem__", changed)

    return plants


def no_number(x, y, w):
    w["colours"] = w["colours"] * np.nan


def wrong(x, y, w):
    y["colours"] = (y["colours"] + 1) % 3


def test_a_loss_that_is_no_number_is_undone_and_its_batch_passed_over(tmp_path, plant, capsys):
    plant(no_number, {5})
    mm.train(tiny_recipe.recipe(), tmp_path, tasks=["colours", "upper"], steps=10, log_every=2, save_every=4)
    (record,) = read(tmp_path / "run.json")["recovered"]
    named = record.pop("examples")["5"]
    assert record == {"step": 6, "task": "colours", "loss": "nan", "restored": 4, "passed_over": [5]}
    assert len(named) == recovery.NAMED
    assert all(0 <= row < 60 for row in named)
    assert (
        "Task 'colours': a loss of nan at step 6. Going back to step 4, passing over batch 5" in capsys.readouterr().out
    )
    lines = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [2, 4, 6, 8, 10]
    assert all(np.isfinite(line["loss"]["colours"]) for line in lines)
    newest = Checkpoints(tmp_path / "checkpoints").newest(print)
    assert newest.progress["position"]["batch"] == 11  # the tenth step took batch 10
    assert newest.progress["position"]["passed_over"] == [5]


def test_a_blow_up_is_undone(tmp_path, plant, monkeypatch):
    monkeypatch.setattr(recovery, "RECENT", 10)
    plant(wrong, {70})
    mm.train(tiny_recipe.recipe(), tmp_path, tasks=["colours"], steps=75, label_smoothing=0.0, save_every=20)
    (record,) = read(tmp_path / "run.json")["recovered"]
    assert (record["step"], record["restored"], record["passed_over"]) == (71, 60, [70])
    assert float(record["loss"]) > np.log(3)


def test_faults_without_end_stop_the_run_with_the_last_good_weights(tmp_path, plant, capsys):
    plant(no_number, set(range(5, 100)))
    with pytest.raises(
        mm.UserError, match=r"Task 'colours': a loss of nan at step .* Lower the learning rate"
    ) as error:
        mm.train(tiny_recipe.recipe(), tmp_path, tasks=["colours"], steps=20, save_every=4)
    assert "The weights of step 4 are kept" in str(error.value)
    record = read(tmp_path / "run.json")
    assert record["status"] == "failed"
    assert len(record["recovered"]) == recovery.TRIES + 1
    weights = mm.load(tmp_path).model.weights
    assert all(np.isfinite(np.asarray(variable)).all() for variable in weights)


class Steps:
    """What Guard and Recovery read of a History and of MixedBatches."""

    def __init__(self, step=0):
        self.step, self.steps_since_reset, self.passed_over = step, step, set()

    def batch(self, step):
        return step + len(self.passed_over)


def test_a_fault_that_moves_on_blames_the_batch_before_too():
    batches = Steps()
    recover = Recovery(None, None, None, batches, None, None)
    assert recover._blamed(FaultError(10, "a", np.nan)) == {10}
    batches.passed_over = {10}
    assert recover._blamed(FaultError(10, "a", np.nan)) == {9, 11}
    assert recover._blamed(FaultError(15, "a", np.nan)) == {16}


def test_single_losses_are_found_from_means():
    """The means of 1, 2, 3, then, after a reset, of 6 and 600."""

    class Task:
        num_classes = 100

    history = Steps()
    guard = Guard({"a": Task}, history)
    for since, mean in ((0, 1.0), (1, 1.5), (2, 2.0), (0, 6.0)):
        history.steps_since_reset = since
        guard.on_train_batch_end(0, {"loss": mean})
    assert guard.state()["recent"]["a"] == [1.0, 2.0, 3.0, 6.0]
    again = Guard({"a": Task}, history)
    again.restore(json.loads(json.dumps(guard.state())))
    again._recent["a"].extend([1.0] * recovery.RECENT)
    history.steps_since_reset = 1
    with pytest.raises(FaultError) as fault:
        again.on_train_batch_end(0, {"loss": 303.0})
    assert fault.value.loss == 600


def test_weights_that_are_no_numbers_are_a_fault(tmp_path, monkeypatch):
    """Found when a checkpoint is written, although the loss was fine."""
    real, calls = Checkpoints.save, []

    def save(self, step, *arguments):
        calls.append(step)
        if calls.count(4) == 1 and step == 4:
            raise NotFiniteError("body/0")
        real(self, step, *arguments)

    monkeypatch.setattr(Checkpoints, "save", save)
    mm.train(tiny_recipe.recipe(), tmp_path, tasks=["colours"], steps=6, save_every=2)
    (record,) = read(tmp_path / "run.json")["recovered"]
    assert (record["step"], record["task"], record["restored"], record["passed_over"]) == (4, None, 2, [3])
    assert calls == [0, 2, 4, 4, 6]


def test_a_checkpoint_that_cannot_be_written_is_told_and_tried_again(tmp_path, monkeypatch, capsys):
    real = Checkpoints.save

    def save(self, step, *arguments):
        if step in (2, 4):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(self, step, *arguments)

    monkeypatch.setattr(Checkpoints, "save", save)
    mm.train(tiny_recipe.recipe(), tmp_path, tasks=["colours"], steps=6, save_every=2)
    assert capsys.readouterr().out.count("No space left on device. Training goes on") == 2
    names = [file.name for file in sorted((tmp_path / "checkpoints").iterdir())]
    assert names == ["step-000000000.npz", "step-000000006.npz"]


def test_too_little_room_is_told_before_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr("multimodel.training.run.shutil.disk_usage", lambda folder: type("Usage", (), {"free": 10**5}))
    with pytest.raises(mm.UserError, match="MiB of disk space. Received: .* with 0.1 MiB. Make room"):
        mm.train(tiny_recipe.recipe(), tmp_path / "run", tasks=["colours"], steps=1)
    assert not list((tmp_path / "run").iterdir())


@contextlib.contextmanager
def small_disk(folder, size):
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=False)
    if mounted.returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_fills_while_training_loses_nothing(tmp_path):
    """A real one; the run ends with what to do, and goes on when there is room."""
    command = [sys.executable, "-m", "multimodel", "train", "tests/tiny_recipe.py", "--save-every", "5", "--steps"]
    with small_disk(tmp_path / "disk", "6m") as disk:
        out = disk / "run"
        process = subprocess.Popen(
            [*command, "2000", "--out", str(out), "--log-every", "5"],
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        while process.poll() is None and not (out / "checkpoints" / "step-000000005.npz").exists():
            time.sleep(0.01)
        with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(b"x" * 4096)
        time.sleep(3)
        process.send_signal(2)
        output, errors = process.communicate()
        assert process.returncode == 2, output + errors
        assert "make room, and go on with --resume" in errors
        assert "Traceback" not in errors
        kept = Checkpoints(out / "checkpoints").newest(print)
        assert kept.step >= 5
        (disk / "filler").unlink()
        again = [*command, str(kept.step + 10), "--out", str(out), "--resume", "--log-every", "5"]
        subprocess.run(again, cwd=ROOT, check=True, capture_output=True)
        assert read(out / "metrics.json")["step"] == kept.step + 10
        steps = [json.loads(line)["step"] for line in (out / "history.jsonl").read_text().splitlines()]
        assert steps == list(range(5, kept.step + 11, 5))


def test_checkpoints_cost_a_hundredth_of_the_time_at_most(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(resume.time, "monotonic", lambda: now[0])
    parts = {"history": None, "validation": None}
    saver = resume.Saver(None, None, {}, parts, None, None, None)
    for cost, wait in ((0.1, resume.SECONDS), (2.0, 200.0)):
        saver._cost = cost
        now[0] = saver._last + wait
        assert not saver._due()
        now[0] += 0.1
        assert saver._due()
