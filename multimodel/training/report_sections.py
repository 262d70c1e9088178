"""What a run's report shows: scores, curves, experts and examples.

Each section is a list of elements, empty where there is nothing to show.
"""

from multimodel.training.charts import bar, curve, heat_strip
from multimodel.training.page import element, note, table
from multimodel.training.sample_cards import sample_cards

OUT_OF_100 = ("bleu", "chrf")
LESS_IS_BETTER = ("wer", "cer", "log_perplexity")
NO_METRICS = ("split", "examples", "baseline")  # of a task's entry in metrics.json
WORDED = 12  # experts whose shares are also written


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
        note(
            "Of generated output, on held-out data. ",
            baseline,
            " marks the score of a model that always writes the commonest output of the training data.",
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


def _recovery(one):
    """A recovery of `run.json` in words."""
    what = f"task {one['task']}, a loss of {one['loss']}" if one["task"] else "weights that are no numbers"
    rows = [f"train[{row}]" for of_batch in one["examples"].values() for row in of_batch]
    examples = f"; worst examples {', '.join(rows)}" if rows else ""
    passed = ", ".join(map(str, one["passed_over"]))
    return f"step {one['step']}, {what}: back to step {one['restored']}, batch {passed} passed over{examples}"


def curves(run, history):
    """Loss, accuracy and held-out scores of each task over the steps, and the learning rate."""
    logged = [record for record in history if "loss" in record]
    if not logged:
        return [element("p", "There are no curves: no step was logged.")]
    marks = [(step, f"resumed after step {step}") for step in run.get("resumed_at", [])]
    for one in run.get("recovered", []):
        marks.append((one["step"], _recovery(one)))
    cards = [_curves_of(task, logged, history, marks) for task in logged[-1]["loss"]]
    rates = [(record["step"], record["learning_rate"]) for record in logged]
    cards.append(
        element("article", element("h3", "all tasks"), _figure("learning rate", rates, "rate", marks), class_="card")
    )
    notes = [element("li", text) for _, text in marks]
    return [
        note(
            "Means over the steps between two logged lines; accuracy is that of single positions, with the right "
            "output so far given."
        ),
        element("div", *cards, class_="cards curves"),
        *([element("ul", *notes)] if notes else []),
    ]


def _curves_of(task, logged, history, marks):
    """One task's card."""
    figures = []
    for name in ("loss", "accuracy"):
        points = [(record["step"], record[name][task]) for record in logged if task in record[name]]
        figures.append(_figure(name, points, name, marks, top=1 if name == "accuracy" else None))
    held_out: dict[str, list] = {}
    for record in history:
        for metric, value in record.get("validation", {}).get(task, {}).items():
            held_out.setdefault(metric, []).append((record["step"], value))
    for metric, points in held_out.items():
        figures.append(_figure(f"held-out {metric}", points, "held-out", marks))
    return element("article", element("h3", task), *figures, class_="card")


def _figure(name, points, kind, marks, top=None):
    value = points[-1][1] if points else None
    caption = element("figcaption", name, element("strong", "" if value is None else f"{value:.3g}"))
    return element("figure", caption, curve(points, name, kind, marks, top))


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
    return [note(said), *(part for block in load.items() for part in _heat_map(*block))]


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


def examples(samples, run):
    """What the model wrote, wrong and right."""
    parts = []
    for task in run.get("tasks", {}):
        cards = sample_cards(samples, task)
        if cards:
            kind = run["tasks"][task]["input_modality"]
            parts += [element("h3", task), element("div", *cards, class_=f"cards samples of-{kind}")]
    said = note(
        "A few held-out examples of each kind, evenly spread, the wrong ones first. Under 'Where the decoder looked' "
        "stands its last attention over the input, the mean of its heads, for each piece of the output."
    )
    return [said, *parts] if parts else []
