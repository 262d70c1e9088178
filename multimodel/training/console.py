"""What a run tells its user, on a terminal and in a log."""

import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table


class Reporter:
    """Prints to stdout: tables, one line for each logged interval, and on a terminal a bar with the time left."""

    def __init__(self, quiet=False):
        self._console = Console(file=sys.stdout, highlight=False, soft_wrap=True, quiet=quiet)
        self._bar = None

    def line(self, text):
        self._console.print(text, markup=False)

    def mixture(self, tasks, shares, examples):
        """The shares of a step, and how many examples there are."""
        total = sum(shares.values())
        table = Table("task", "reads", "writes", "examples", "a step", "share", "too long", title="Each step holds")
        for name, task in tasks.items():
            table.add_row(
                name,
                task.inputs.modality,
                task.targets.modality,
                str(len(examples[name])),
                str(shares[name]),
                f"{shares[name] / total:.1%}",
                "not counted" if examples[name].cut is None else str(examples[name].cut),
            )
        self._console.print(table)

    def training(self, steps):
        self._steps = steps
        self.line(f"Training {steps} steps; the first one includes tracing.")
        if self._console.is_terminal:
            columns = (
                TextColumn("training"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
            )
            self._bar = Progress(*columns, console=self._console)
            self._task = self._bar.add_task("training", total=steps)
            self._bar.start()

    def step(self, step, seconds):
        if step == 1:
            self.line(f"The first step came after {seconds:.0f} s")
        if self._bar:
            self._bar.update(self._task, completed=step)

    def interval(self, record):
        """One line: step, time, and each task's loss and teacher-forced accuracy."""
        step, seconds = record["step"], record["seconds"]
        left = seconds / step * (self._steps - step)
        tasks = "  ".join(f"{task} {loss:.2f}/{record['accuracy'][task]:.2f}" for task, loss in record["loss"].items())
        self.line(f"step {step} ({seconds:.0f} s, {left:.0f} s left) loss/accuracy: {tasks}")

    def stopping(self):
        self.line("Stopping after this step, to keep and score the weights. Ctrl-C again ends at once.")

    def trained(self):
        if self._bar:
            self._bar.stop()
            self._bar = None

    def evaluating(self, name):
        self.line(f"Scoring {name}")

    def finished(self, run, step, steps, seconds, scores):
        """The table of scores, and where everything is."""
        if step < steps:
            self.line(f"Stopped after {step} of {steps} steps; the weights so far are kept and scored.")
        self.scores(scores)
        self.line(f"Trained {step} steps in {seconds / 60:.1f} minutes. In {run.folder}:")
        self.line("  metrics.json  scores      predictions/  every scored example")
        self.line("  history.jsonl losses      model/        weights, vocabularies; run.json  settings")

    def scores(self, scores):
        """A table: each task's metrics beside those of its most frequent training output."""
        table = Table("task", "examples", "metric", "score", "always the commonest output", title="Held-out scores")
        for name, result in scores.items():
            metrics = [metric for metric in result if metric not in ("split", "examples", "baseline")]
            for row, metric in enumerate(metrics):
                first = (name, f"{result['examples']} {result['split']}") if row == 0 else ("", "")
                baseline = result["baseline"].get(metric)
                table.add_row(*first, metric, f"{result[metric]:.3f}", "" if baseline is None else f"{baseline:.3f}")
        self._console.print(table)
