"""What is shown while a model trains: a live display on a terminal, lines in a log."""

import datetime
import sys
import time

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from multimodel.memory import resident_mb
from multimodel.training.listener import Listener

REFRESHES = 2  # a second


class PlainProgress(Listener):
    """One line for each logged interval.

    Args:
        tell: takes a line for the user.
        verbose: whether each task gets a line of its own below.
    """

    def __init__(self, tell, verbose=False):
        self._tell, self._verbose = tell, verbose
        self._first = self._steps = None

    def begin(self, step, steps):
        if self._steps is None:  # not once more after a recovery
            self._first, self._steps, self._start = step + 1, steps, time.monotonic()
            self._tell(f"Training {steps - step} steps; the first one includes tracing.")

    def step(self, glance):
        if glance["step"] == self._first:
            self._tell(f"The first step came after {time.monotonic() - self._start:.0f} s")

    def interval(self, record):
        line = f"step {_standing(record, self._steps, record['memory_mb'])}"
        tasks = [(task, loss, record["accuracy"][task]) for task, loss in record["loss"].items()]
        if not self._verbose:
            shown = "  ".join(f"{task} {loss:.2f}/{accuracy:.2f}" for task, loss, accuracy in tasks)
            self._tell(f"{line}; loss/accuracy: {shown}")
            return
        self._tell(line)
        for task, loss, accuracy in tasks:
            counts = f"{record['examples'][task]} examples, {record['epochs'][task]:.2f} epochs"
            padding = "".join(f", padding of {role} {share:.0%}" for role, share in record["padding"][task].items())
            self._tell(f"  {task}: loss {loss:.4f}, accuracy {accuracy:.4f}, {counts}{padding}")


class LiveProgress(Listener):
    """A bar, a line for the whole and one for each task, drawn anew twice a second; other lines go above it.

    Args:
        console: rich's, of a terminal.
    """

    def __init__(self, console):
        self._console = console
        self._live = None
        self._glance = None

    def begin(self, step, steps):
        self._done, self._steps, self._start = step, steps, time.monotonic()
        if self._live is None:
            self._live = Live(
                console=self._console,
                get_renderable=self._display,
                refresh_per_second=REFRESHES,
                redirect_stderr=sys.stderr.isatty(),  # which may be a file while stdout is a terminal
            )
            self._live.start()

    def step(self, glance):
        self._glance, self._done = glance, glance["step"]

    def close(self):
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _display(self):
        """The bar stands first: what a low terminal cuts off is the last tasks."""
        whole = Table.grid()
        whole.add_column(no_wrap=True, overflow="ellipsis")
        whole.add_row(ProgressBar(total=self._steps, completed=self._done, width=min(self._console.width, 80)))
        if self._glance is None:
            whole.add_row(f"waiting for the first step, which is traced: {time.monotonic() - self._start:.0f} s")
            return whole
        whole.add_row(f"step {_standing(self._glance, self._steps, resident_mb())}")
        return Group(whole, _task_table(self._glance))


def _task_table(glance):
    table = Table(box=None, pad_edge=False)
    table.add_column("task", no_wrap=True, overflow="ellipsis", max_width=24)
    for name in ("loss", "accuracy", "examples", "epochs"):
        table.add_column(name, no_wrap=True, justify="right")
    for task, loss in glance["loss"].items():
        accuracy, examples, epochs = (glance[name][task] for name in ("accuracy", "examples", "epochs"))
        table.add_row(Text(task), f"{loss:.3f}", f"{accuracy:.3f}", str(examples), f"{epochs:.2f}")
    return table


def _standing(glance, steps, memory_mb):
    """`50/700, 0.512 s a step, 0:05:33 left, 2.4 GB`; the time left is by the latest steps."""
    pace = 1 / glance["steps_per_second"]
    left = datetime.timedelta(seconds=round((steps - glance["step"]) * pace))
    return f"{glance['step']}/{steps}, {pace:.3g} s a step, {left} left, {memory_mb / 1000:.1f} GB"
