"""What the sections of a run's report hold. Each gives a list of elements, empty where there is nothing to show."""

import json

from multimodel.training.charts import bar, curve, heat_strip
from multimodel.training.page import element, table
from multimodel.training.sample_cards import sample_cards

OUT_OF_100 = ("bleu", "chrf")
LESS_IS_BETTER = ("wer", "cer", "log_perplexity")
NO_METRICS = ("split", "examples", "baseline")  # of a task's entry in metrics.json
LISTED = 20  # examples that were left out
WORDED = 12  # experts whose shares are also written


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


def scores(run, metrics):
    """A card with each task's headline, and a table of all scores."""
    tasks = metrics.get("tasks", {})
    if not tasks:
        return [element("p", "There are no scores: the run's model has not been scored.")]
    rows = [
        [element("span", task, element("small", f"{found['examples']:,} of {found['split']}")), _named(metric), *values]
        for task, found in tasks.items()
        for metric, *values in _pairs(found)
    ]
    baseline = element("span", class_="swatch", aria_hidden="true")
    return [
        element(
            "p",
            "Of generated output, on held-out data. ",
            baseline,
            " marks the score of a model that always writes the commonest output of the training data.",
            class_="muted",
        ),
        element("div", *(_headline(task, found, run) for task, found in tasks.items()), class_="cards headlines"),
        element(
            "details",
            element("summary", "All scores"),
            table("All scores", ("task", "metric", "score", "commonest output"), rows, words=2),
        ),
    ]


def _pairs(found):
    """`[(metric, score, that of the commonest output)]` of one task, in digits."""
    return [
        (metric, _digits(metric, value), _digits(metric, found["baseline"].get(metric)))
        for metric, value in found.items()
        if metric not in NO_METRICS
    ]


def _headline(task, found, run):
    metric, score, baseline = _pairs(found)[0]
    top = 100 if metric in OUT_OF_100 else 1
    return element(
        "article",
        element("h3", task),
        element("p", _modalities(run, task), class_="muted"),
        element("p", element("strong", score), " ", element("span", _named(metric)), class_="score"),
        bar(found[metric], found["baseline"].get(metric), top) if metric != "log_perplexity" else None,
        element("p", f"commonest output {baseline}", class_="muted") if baseline else None,
        class_="card",
    )


def _modalities(run, task):
    signature = run.get("tasks", {}).get(task)
    return f"{signature['input_modality']} → {signature['target_modality']}" if signature else ""


def _named(metric):
    return f"{metric}, less is better" if metric in LESS_IS_BETTER else metric


def _digits(metric, value):
    return "" if value is None else f"{value:.1f}" if metric in OUT_OF_100 else f"{value:.3f}"


def curves(run, history):
    """Loss, accuracy and held-out scores of each task over the steps, and the learning rate."""
    logged = [record for record in history if "loss" in record]
    if not logged:
        return [element("p", "There are no curves: no step was logged.")]
    marks = [(step, f"resumed after step {step}") for step in run.get("resumed_at", [])]
    marks += [(one["step"], f"recovered at step {one['step']}: {one['reason']}") for one in run.get("recovered", [])]
    cards = [_curves_of(task, logged, history, marks) for task in logged[-1]["loss"]]
    rates = [(record["step"], record["learning_rate"]) for record in logged]
    cards.append(
        element("article", element("h3", "all tasks"), *_figure("learning rate", rates, "rate", marks), class_="card")
    )
    notes = [element("li", text) for _, text in marks]
    return [
        element(
            "p",
            "Means over the steps between two logged lines; accuracy is that of single positions, with the right "
            "output so far given.",
            class_="muted",
        ),
        element("div", *cards, class_="cards curves"),
        *([element("ul", *notes)] if notes else []),
    ]


def _curves_of(task, logged, history, marks):
    """One task's card."""
    figures = []
    for name in ("loss", "accuracy"):
        points = [(record["step"], record[name][task]) for record in logged if task in record[name]]
        figures += _figure(name, points, name, marks, top=1 if name == "accuracy" else None)
    held_out: dict[str, list] = {}
    for record in history:
        for metric, value in record.get("validation", {}).get(task, {}).items():
            held_out.setdefault(metric, []).append((record["step"], value))
    for metric, points in held_out.items():
        figures += _figure(f"held-out {metric}", points, "held-out", marks)
    return element("article", element("h3", task), *figures, class_="card")


def _figure(name, points, kind, marks, top=None):
    value = points[-1][1] if points else None
    caption = element("figcaption", name, element("strong", "" if value is None else f"{value:.3g}"))
    return [element("figure", caption, curve(points, name, kind, marks, top))]


def experts(logged):
    """Which experts each task uses: for each block of experts, tasks by experts."""
    load = logged[-1].get("expert_load") if logged else None
    if not load:
        return []
    before = logged[-2]["step"] if len(logged) > 1 else 0
    said = (
        f"Of the choices that a task's positions made from step {before + 1} to {logged[-1]['step']}, the share that "
        f"fell on each expert. Tasks that stop after the encoder choose none of the decoder's."
    )
    return [element("p", said, class_="muted"), *(part for block in load.items() for part in _heat_map(*block))]


def _heat_map(block, by_task):
    number = max(map(len, by_task.values()), default=0)
    if not number:
        return []
    top = max(max(shares) for shares in by_task.values())
    rows = []
    for task, shares in by_task.items():
        texts = [f"{share:.0%}" for share in shares]
        label = f"Shares of {number} experts: {', '.join(texts[:WORDED])}"
        strip = heat_strip(shares, top, label, texts if number <= WORDED else None)
        rows += [element("span", task, class_="piece"), strip]
    names = [f"{i}" for i in range(1, number + 1)] if number <= WORDED else ["1", f"{number}"]
    numbers = element("div", *(element("span", name) for name in names), class_="experts", aria_hidden="true")
    heading = element("h3", block.replace("_", " "))
    return [
        heading,
        element("div", element("span", "expert", class_="piece muted"), numbers, *rows, class_="heat-map card"),
    ]


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
    return [element("p", said, class_="muted"), table("What was trained on", columns, rows), *_list_left_out(folder)]


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


def examples(samples, run):
    """What the model wrote, wrong and right."""
    parts = []
    for task in run.get("tasks", {}):
        cards = sample_cards(samples, task)
        if cards:
            kind = run["tasks"][task]["input_modality"]
            parts += [element("h3", task), element("div", *cards, class_=f"cards samples of-{kind}")]
    said = (
        "A few held-out examples of each kind, evenly spread, the wrong ones first. Under 'Where the decoder looked' "
    )
    said += "stands its last attention over the input, the mean of its heads, for each piece of the output."
    return [element("p", said, class_="muted"), *parts] if parts else []


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
