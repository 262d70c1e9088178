"""What a run's report says in numbers and words: the run as a whole, its data, its settings."""

import json

from multimodel.training.page import element, note, table

LISTED = 20  # examples that were left out


def head(run, metrics, logged):
    """Name, status, and the numbers of the whole run."""
    status = run.get("status", "unknown")
    reason = {"failed": run.get("reason"), "running": "It had not ended when this page was written."}.get(status)
    facts = [element("div", element("dt", name), element("dd", value)) for name, value in _facts(run, metrics, logged)]
    return [
        element("h1", run.get("recipe", "A run")),
        element("p", element("strong", status), element("span", reason) if reason else None, class_=f"status {status}"),
        element("dl", *facts, class_="facts"),
    ]


def _facts(run, metrics, logged):
    """`(name, value)` of what is known."""
    last = logged[-1] if logged else {}
    done, planned = metrics.get("step", last.get("step", 0)), run.get("settings", {}).get("steps", 0)
    seconds, memory = metrics.get("seconds", last.get("seconds")), metrics.get("peak_memory_mb")
    facts = {
        "tasks": len(run.get("tasks", {})),
        "parameters": _in_words(run.get("parameters", {}).get("total", 0)),
        "steps": f"{done:,}" if done == planned else f"{done:,} of {planned:,}",
        "training": _duration(seconds) if seconds is not None else None,
        "steps a second": _rate(logged),
        "memory at most": f"{memory / 1000:.1f} GB" if memory else None,
    }
    return [(name, value) for name, value in facts.items() if value is not None]


def _in_words(number):
    for size, word in ((10**9, "billion"), (10**6, "million")):
        if number >= size:
            return f"{number / size:.3g} {word}"
    return f"{number:,}"


def _duration(seconds):
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _rate(logged):
    """Steps a second from the first logged step on, so that the tracing of the first does not count."""
    if len(logged) < 2 or logged[-1]["seconds"] <= logged[0]["seconds"]:
        return None
    return f"{(logged[-1]['step'] - logged[0]['step']) / (logged[-1]['seconds'] - logged[0]['seconds']):.2f}"


def data(folder, run, logged):
    """What the steps used of each task, and the examples that could not be used."""
    if not logged:
        return []
    last, rates = logged[-1], run.get("settings", {}).get("rates", {})
    columns = ("task", "rate", "examples", "epochs", "tokens", "padding in", "padding out", "left out")
    rows = [
        [
            task,
            _plain(rates.get(task)),
            f"{examples:,}",
            f"{last['epochs'][task]:.2f}",
            f"{last['tokens'][task]:,}" if last["tokens"][task] else "",
            *(_share(last["padding"][task].get(role)) for role in ("inputs", "targets")),
            f"{_left_out(run, task):,}",
        ]
        for task, examples in last["examples"].items()
    ]
    said = "Counted since the first step; padding is of the last logged steps, left-out examples of all splits."
    return [note(said), table("What was trained on", columns, rows), *_list_left_out(folder)]


def _plain(number):
    return "" if number is None else f"{number:,.4g}"


def _share(value):
    return "" if value is None else f"{value:.0%}"


def _left_out(run, task):
    splits = run.get("left_out", {}).get(task, {})
    return sum(number for counts in splits.values() for number in counts.values())


def _list_left_out(folder):
    file = folder / "left_out.jsonl"
    if not file.is_file():
        return []
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    rows = [[one["task"], one["split"], one["path"], one["reason"]] for one in map(json.loads, lines[:LISTED])]
    more = [element("p", f"And {len(lines) - LISTED:,} more, in left_out.jsonl.")] if len(lines) > LISTED else []
    listed = table("Examples that were left out", ("task", "split", "example", "reason"), rows, words=4)
    return [element("details", element("summary", f"{len(lines):,} unusable examples"), listed, *more)]


def settings(run):
    """Settings, sizes of the parts, and versions."""
    values = {"recipe file": run.get("recipe_file"), "seed": run.get("seed")} | run.get("settings", {})
    groups = {
        "Settings": {name: value for name, value in values.items() if name != "rates"},  # they stand beside the data
        "Parameters": {name: f"{number:,}" for name, number in run.get("parameters", {}).items()},
        "Versions": run.get("versions", {}),
    }
    cards = [
        element("article", element("h3", name), _listed(values), class_="card")
        for name, values in groups.items()
        if values
    ]
    return [element("div", *cards, class_="cards")]


def _listed(values):
    rows = [
        part
        for name, value in values.items()
        if value not in (None, "", {})
        for part in (element("dt", name.replace("_", " ")), element("dd", _shown(value)))
    ]
    return element("dl", *rows, class_="values")


def _shown(value):
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value))
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
