"""What is shown while a model trains, on a terminal and elsewhere."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios

import pyte
import pytest

from multimodel.training import pace
from multimodel.training.pace import Pace
from multimodel.training.progress import PlainProgress
from tests import tiny_recipe

TASKS_20 = [f"task_{i:02}_with_a_rather_long_name" for i in range(20)]

SHOW = """
import time
from multimodel.training.console import Reporter
reporter = Reporter()
progress = reporter.progress()
progress.begin(0, 1000)
time.sleep(1.2)
for step in range(1, 4):
    values = {{"loss": 0.75 * step, "accuracy": 0.25 * step, "examples": 32 * step, "epochs": 0.5 * step}}
    by_task = {{name: {{task: value for task in {tasks}}} for name, value in values.items()}}
    progress.step({{"step": step, "seconds": step, "steps_per_second": 2.0}} | by_task)
reporter.stopping(by_user=True)
print("from a callback")
time.sleep(1.2)
{end}
"""


def on_a_terminal(command, columns, rows, **options):
    """Runs a command on a pseudo-terminal: the lines that stand on its screen and above it, and the exit code."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environment = os.environ | {"TERM": "xterm-256color"} | options
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
        environment.pop(name, None)
    process = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environment)
    os.close(follower)
    screen = pyte.HistoryScreen(columns, rows, history=10_000)
    stream = pyte.ByteStream(screen)
    while select.select([leader], [], [], 120)[0]:
        try:
            data = os.read(leader, 65536)
        except OSError:  # Linux' way to say that the other side is closed
            break
        if not data:
            break
        stream.feed(data)
    os.close(leader)
    above = ["".join(line[x].data for x in range(columns)) for line in screen.history.top]
    assert not screen.cursor.hidden
    return [line.rstrip() for line in [*above, *screen.display]], process.wait()


def shown(tasks, columns, rows, end="progress.close()"):
    return on_a_terminal([sys.executable, "-c", SHOW.format(tasks=tasks, end=end)], columns, rows)


def test_a_terminal_shows_the_whole_and_each_task():
    lines, code = shown(["animals", "captions"], 100, 24)
    assert code == 0
    text = "\n".join(lines)
    assert len(re.findall(r"step 3/1000, 0.5 s a step, 0:08:18 left, \d\.\d GB", text)) == 1
    assert len(re.findall(r"^animals +2\.250 +0\.750 +96 +1\.50$", text, re.MULTILINE)) == 1
    assert len(re.findall(r"^captions +2\.250", text, re.MULTILINE)) == 1
    assert "waiting for the first step" not in text  # it was, and is drawn over


def test_what_others_print_stands_above_the_display():
    lines, _ = shown(["animals"], 100, 24)
    stopping, printed, standing = (
        next(i for i, line in enumerate(lines) if part in line) for part in ("Stopping after", "from a call", "step 3/")
    )
    assert stopping < printed < standing


def test_twenty_tasks_on_sixty_columns():
    lines, _ = shown(TASKS_20, 60, 40)
    assert sum(line.startswith("step 3/1000, 0.5 s a step, 0:08:18 left") for line in lines) == 1
    rows = [line for line in lines if line.startswith("task_")]
    assert [row[:7] for row in rows] == [task[:7] for task in TASKS_20]
    assert all(re.search(r"… +2\.250 +0\.750 +96 +1\.50$", row) for row in rows)


def test_what_a_low_terminal_cuts_off_is_tasks():
    """While it lives; the last state is printed whole."""
    lines, _ = shown(TASKS_20, 60, 12, end="reporter._console.show_cursor(); import os; os._exit(0)")
    assert sum(line.startswith("step 3/1000") for line in lines) == 1
    assert any(line.startswith("task_00") for line in lines)
    assert not any(line.startswith("task_19") for line in lines)
    lines, _ = shown(TASKS_20, 60, 12)
    assert sum(line.startswith("step 3/1000") for line in lines) == 1
    assert any(line.startswith("task_19") for line in lines)


def test_a_training_on_a_terminal(tmp_path):
    command = [sys.executable, tiny_recipe.__file__, "--out", str(tmp_path / "run"), "--steps", "3"]
    lines, code = on_a_terminal(command, 100, 50, PYTHONPATH=os.pathsep.join(sys.path))
    assert code == 0, lines
    text = "\n".join(lines)
    assert len(re.findall(r"^step 3/3, ", text, re.MULTILINE)) == 1
    for task in ("colours", "captions", "upper"):
        assert len(re.findall(rf"^{task} +\d\.\d+ +\d\.\d+ +\d+ +\d\.\d\d$", text, re.MULTILINE)) == 1
    assert "Held-out scores" in text


@pytest.mark.parametrize("environment", [{}, {"FORCE_COLOR": "1"}])
def test_no_terminal_no_control_characters(environment):
    script = SHOW.format(tasks=["animals"], end="progress.close()")
    command = [sys.executable, "-c", script]
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | environment)
    assert not re.search(r"[^\x20-\x7e\n]", result.stdout)
    assert result.stdout.splitlines()[:2] == [
        "Training 1000 steps; the first one includes tracing.",
        "The first step came after 1 s",
    ]
    assert len(result.stdout.splitlines()) == 4


RECORD = {
    "step": 50,
    "seconds": 60.0,
    "steps_per_second": 2.0,
    "loss": {"animals": 1.5, "captions": 3.25},
    "accuracy": {"animals": 0.5, "captions": 0.25},
    "examples": {"animals": 800, "captions": 400},
    "epochs": {"animals": 0.4, "captions": 0.125},
    "padding": {"animals": {}, "captions": {"inputs": 0.5, "targets": 0.625}},
    "memory_mb": 1512.0,
}


def test_a_line_for_each_interval():
    lines = []
    progress = PlainProgress(lines.append)
    progress.begin(0, 700)
    progress.interval(RECORD)
    assert lines[1:] == [
        "step 50/700, 0.5 s a step, 0:05:25 left, 1.5 GB; loss/accuracy: animals 1.50/0.50  captions 3.25/0.25"
    ]


def test_verbose_gives_each_task_a_line():
    lines = []
    progress = PlainProgress(lines.append, verbose=True)
    progress.begin(0, 700)
    progress.interval(RECORD)
    assert lines[1:] == [
        "step 50/700, 0.5 s a step, 0:05:25 left, 1.5 GB",
        "  animals: loss 1.5000, accuracy 0.5000, 800 examples, 0.40 epochs",
        "  captions: loss 3.2500, accuracy 0.2500, 400 examples, 0.12 epochs, padding of inputs 50%, "
        "padding of targets 62%",
    ]


def test_the_pace_is_of_the_latest_steps_and_not_of_tracing(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(pace.time, "monotonic", lambda: now[0])
    measured = Pace()
    assert measured.steps_per_second == 0
    for seconds, expected in ((20, 0.05), (0.5, 2), (0.5, 2)):
        now[0] += seconds
        measured.step()
        assert measured.steps_per_second == pytest.approx(expected)
    assert measured.seconds == 21
    for _ in range(100):
        now[0] += 0.1
        measured.step()
    assert measured.steps_per_second == pytest.approx(10)
