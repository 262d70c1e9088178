"""What a run tells its user, on a terminal and in a log."""

import collections
import itertools
import re
import sys

from rich.console import Console
from rich.table import Table

from multimodel.training.progress import LiveProgress, PlainProgress

ROLES = ("inputs", "targets")
LISTED = 20  # lines of a list; the rest is in JSON


class Reporter:
    """Prints tables and lines to stdout."""

    def __init__(self, quiet=False, verbose=False):
        self._console = Console(file=sys.stdout, highlight=False, soft_wrap=True, quiet=quiet)
        self._verbose = verbose

    def line(self, text):
        self._console.print(text, markup=False)

    def mixture(self, tasks, shares, examples):
        """The shares of a step, and how many examples there are."""
        total = sum(shares.values())
        table = Table(
            "task", "reads", "writes", "examples", "left out", "a step", "share", "cut", title="Each step holds"
        )
        for name, task in tasks.items():
            table.add_row(
                name,
                task.inputs.modality,
                task.targets.modality,
                str(len(examples[name])),
                _left_out(examples[name]),
                str(shares[name]),
                f"{shares[name] / total:.1%}",
                "not counted" if examples[name].cut is None else str(examples[name].cut),
            )
        self._console.print(table)

    def progress(self):
        """A Listener that shows how training goes: live on a terminal, in lines elsewhere."""
        if self._console.is_interactive and sys.stdout.isatty():  # rich also believes FORCE_COLOR
            return LiveProgress(self._console)
        return PlainProgress(self.line, self._verbose)

    def stopping(self, by_user):
        if by_user:
            self.line("Stopping after this step, to keep and score the weights. Ctrl-C again ends at once.")
        else:
            self.line("SIGTERM: stopping after this step, with a checkpoint; --resume goes on.")

    def warning(self, text):
        self.line(f"Warning: {text}")

    def resuming(self, step, changes):
        """That a run goes on, and what is not as it was."""
        self.line(f"Going on after step {step}.")
        self._list("changed since then", changes)

    def recovered(self, fault, record):
        """A fault, and what came of it."""
        rows = [f"train[{row}]" for of_batch in record["examples"].values() for row in of_batch]
        examples = f" Its worst examples: {', '.join(rows)}." if rows else ""
        self.warning(
            f"{fault}. Going back to step {record['restored']}, passing over batch "
            f"{', '.join(map(str, record['passed_over']))}.{examples}"
        )

    def validated(self, step, scores, improved):
        """One line: the scores of the validation split."""
        tasks = "  ".join(
            f"{task} " + "/".join(f"{value:.3f}" for value in metrics.values()) for task, metrics in scores.items()
        )
        self.line(f"step {step} validation: {tasks}{'  (best)' if improved else ''}")

    def evaluating(self, name):
        self.line(f"Scoring {name}")

    def finished(self, folder, metrics, steps):
        """The tables of scores and of what was used, and where everything is."""
        step, seconds, saving = metrics["step"], metrics["seconds"], metrics["checkpoint_seconds"]
        if step < steps:
            self.line(f"Stopped after {step} of {steps} steps; the weights so far are kept and scored.")
        if "best_step" in metrics:
            self.line(f"The weights are those after step {metrics['best_step']}, the best on validation.")
        self.scores(metrics["tasks"])
        self._usage(metrics["usage"])
        self.line(
            f"Trained {step} steps in {seconds / 60:.1f} minutes; checkpoints took "
            f"{saving / max(seconds + saving, 1e-9):.1%} more. In {folder}:"
        )
        self.line("  metrics.json  scores      predictions/  every scored example")
        self.line("  history.jsonl losses      model/        weights, vocabularies; run.json  settings")
        self.line("  checkpoints/  to go on from, with --resume and more --steps")
        if (folder / "export").exists():
            self.line("  export/       a SavedModel: multimodel serve " + str(folder / "export"))
        self.line("  report.html   all of it on one page, with examples from samples/")
        self.line("  tensorboard/  the same in charts: tensorboard --logdir " + str(folder / "tensorboard"))

    def check(self, report):
        """What `multimodel check` found: a table, then each unusable file, and each kind of oddity and duplicate."""
        table = Table("data", "field", "what is in it", title="Data")
        for part in report["splits"]:
            counts = [f"{part[name]} {name}" for name in ("unusable", "incomplete", "odd") if part[name]]
            data = [f"{part['task']}, {part['split']}", f"{part['examples']} examples", *counts]
            fields = [(field, _described(found)) for field, found in part["fields"].items()]
            for cell, field in itertools.zip_longest(data, fields, fillvalue=""):
                table.add_row(cell, *field)
            table.add_section()
        self._console.print(table)
        self._list("unusable", [f"{one['path']}: {one['reason']}" for one in report["unusable"]])
        kinds: dict[str, list] = {}
        for one in report["odd"]:
            kinds.setdefault(f"{one['task']}: {re.sub(r'[0-9.]+', 'N', one['reason'])}", []).append(one["path"])
        self._list("odd", [f"{len(paths)} x {kind}, such as {paths[0]}" for kind, paths in kinds.items()])
        self._list("there twice or more", [_duplicate(one) for one in report["duplicates"]])

    def _list(self, what, lines):
        if lines:
            self.line(f"{len(lines)} {what}:")
            for line in lines[:LISTED]:
                self.line(f"  {line}")
            if len(lines) > LISTED:
                self.line(f"  and {len(lines) - LISTED} more; --json lists all")

    def _usage(self, usage):
        table = Table("task", "examples", "epochs", "tokens", "padding of inputs", "of targets", title="Trained on")
        for name, used in usage.items():
            padding = [f"{used['padding'][role]:.1%}" if role in used["padding"] else "" for role in ROLES]
            tokens = str(used["tokens"]) if used["tokens"] else ""
            table.add_row(name, str(used["examples"]), f"{used['epochs']:.1f}", tokens, *padding)
        self._console.print(table)

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


def _left_out(examples):
    """How many examples are not used, by kind."""
    counts = collections.Counter(one.kind for one in examples.left_out)
    return ", ".join(f"{number} {kind}" for kind, number in counts.items())


def _described(found):
    """One field of a split in words."""
    parts = []
    for name, value in found.items():
        if name == "labels":
            common = sorted(value.items(), key=lambda item: -item[1])
            shown = common if len(common) <= 6 else [*common[:3], ("...", ""), *common[-2:]]
            parts.append(", ".join(f"{label} {number}".strip() for label, number in shown))
        elif isinstance(value, dict):
            least, most = value["least"], value["most"]
            parts.append(f"{name} {least}" if least == most else f"{name} {least} to {most}, median {value['median']}")
        elif name == "too_long" and value:
            parts.append(f"{value:.1%} too long ({found['then']})")
    return "; ".join(parts)


def _duplicate(group):
    where = "across splits" if group["across_splits"] else "in one split"
    return f"{group['task']}, {group['kind']}, {where}, {group['count']}: {', '.join(group['examples'][:3])}"
