"""Scores of a trained model on held-out data, from what it writes by itself."""

import json

import numpy as np

from multimodel.tasks.batches import weights_of
from multimodel.tasks.examples import encoded_parts, sampled_field
from multimodel.training.metrics import METRICS, most_frequent, score
from multimodel.training.teacher_forcing import FORCED_METRICS, TeacherForcedScores


def evaluate(bundle, tasks, split="test", limit=None, predictions=None, report=lambda text: None):
    """Generates outputs for held-out examples and scores them, beside the most frequent training output.

    `token_accuracy`, `top5` and `log_perplexity` are of the model that reads the right targets so far; the most
    frequent output has a `token_accuracy`, position by position, and not the other two.

    Args:
        bundle: a Bundle.
        tasks: `{name: Task}`, the tasks to score.
        split: of the tasks' sources.
        limit: examples of each task at most; all if None.
        predictions: folder for `TASK.jsonl` files with `input`, `target`, `output` and `score` of every example, or
            None.
        report: is told each task's name before its turn.

    Returns:
        `{task: {"split", "examples", metrics..., "baseline": {metrics...}}}`.
    """
    results = {}
    for name, task in tasks.items():
        report(name)
        file = None if predictions is None else predictions / f"{name}.jsonl"
        results[name] = {"split": split} | _evaluate_task(bundle, task, split, limit, file)
    return results


def _evaluate_task(bundle, task, split, limit, file):
    """`{"examples", metrics..., "baseline"}` of one task, a part of its examples at a time."""
    forced = TeacherForcedScores(bundle.model, task) if set(task.metrics) & set(FORCED_METRICS) else None
    guess = most_frequent(sampled_field(task, task.targets, "train"))
    guess_ids = np.asarray(task.targets.encode([guess])[0])
    outputs: list = []
    targets: list = []
    hits = positions = 0.0
    for part in encoded_parts(task, split, limit):
        if not len(part.rows):
            continue
        ids, scores = (best[:, 0] for best in bundle.generate(task.name, part.inputs, part.input_lengths))
        decoded = bundle.decode(task.name, ids)
        if file is not None:
            _write_predictions(file, split, part, decoded, scores, new=not outputs)
        outputs += decoded
        targets += part.raw_targets
        weights = weights_of(task, part.targets)
        hits += ((part.targets == guess_ids) * weights).sum()
        positions += weights.sum()
        if forced:
            forced.add(part)
    generated = [name for name in task.metrics if name in METRICS]
    scores = score(generated, outputs, targets)
    if forced:
        scores |= forced.scores([name for name in task.metrics if name in FORCED_METRICS])
    baseline = score(generated, [guess] * len(targets), targets)
    if "token_accuracy" in task.metrics:
        baseline["token_accuracy"] = round(float(hits / positions), 5)
    return {"examples": len(targets)} | {name: scores[name] for name in task.metrics} | {"baseline": baseline}


def _write_predictions(file, split, part, outputs, scores, new):
    """One JSON object a line. A picture or a clip is named by its row."""
    file.parent.mkdir(parents=True, exist_ok=True)
    names = part.raw_inputs or [f"{split}[{row}]" for row in part.rows]
    with file.open("w" if new else "a", encoding="utf-8") as lines:
        for shown, target, output, value in zip(names, part.raw_targets, outputs, scores, strict=True):
            record = {"input": shown, "target": target, "output": output, "score": round(float(value), 4)}
            lines.write(json.dumps(record, ensure_ascii=False) + "\n")
