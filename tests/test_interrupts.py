"""Ctrl-C and SIGTERM, sent to real processes."""

import json
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from multimodel.training.checkpoints import Checkpoints
from multimodel.training.interrupts import GRACE

ROOT = pathlib.Path(__file__).parent.parent
TRAIN = [sys.executable, "-m", "multimodel", "train", "tests/tiny_recipe.py", "--tasks", "colours", "--log-every", "1"]


def start(*command):
    return subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for(file, process):
    while not file.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def test_sigterm_saves_and_ends_and_the_run_goes_on(tmp_path):
    process = start(*TRAIN, "--out", str(tmp_path), "--steps", "100000")
    wait_for(tmp_path / "history.jsonl", process)
    time.sleep(0.5)
    sent = time.monotonic()
    process.terminate()
    output, errors = process.communicate()
    assert time.monotonic() - sent < GRACE
    assert process.returncode == 128 + signal.SIGTERM, output + errors
    assert "--resume goes on" in output
    assert errors == ""
    record = json.loads((tmp_path / "run.json").read_text())
    done = Checkpoints(tmp_path / "checkpoints").newest(print).step
    assert record["status"] == "failed"
    assert record["reason"] == f"stopped by SIGTERM after step {done}; --resume goes on"
    last = json.loads((tmp_path / "history.jsonl").read_text().splitlines()[-1])
    assert last["step"] == done  # the step at hand was finished
    again = start(*TRAIN, "--out", str(tmp_path), "--steps", str(done + 2), "--resume")
    output, errors = again.communicate()
    assert again.returncode == 0, errors
    assert f"Going on after step {done}" in output
    assert json.loads((tmp_path / "metrics.json").read_text())["step"] == done + 2


AMID = """
import hashlib, sys, time
from multimodel.training import interrupts
interrupts.GRACE = 1
class Reporter:
    def stopping(self, by_user):
        print("asked", flush=True)
with interrupts.Interrupts(Reporter()) as guarded:
    guarded.fitting = sys.argv[1] == "fitting"
    guarded.on_timeout = lambda: print("too late", flush=True)
    print("ready", flush=True)
    if sys.argv[1] == "fitting":
        hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)  # minutes without a look at signals, as in a large step
    time.sleep(60)
"""


@pytest.mark.parametrize(("phase", "said"), [("fitting", "asked\ntoo late"), ("scoring", "")])
def test_sigterm_ends_a_process_that_is_busy(phase, said):
    """Amid a step that takes longer than GRACE, and beside `fit` at once."""
    process = start(sys.executable, "-c", AMID, phase)
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    sent = time.monotonic()
    process.terminate()
    output, errors = process.communicate()
    assert time.monotonic() - sent < 20
    assert process.returncode == 128 + signal.SIGTERM, errors
    assert output.strip() == said
