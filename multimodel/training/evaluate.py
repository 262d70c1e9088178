"""Scores of a trained model on held-out data, from what it writes by itself."""

import json

from multimodel.tasks.examples import encode_examples
from multimodel.training.metrics import most_frequent, score


def evaluate(bundle, tasks, split="test", limit=None, predictions=None, report=lambda text: None):
    """Generates outputs for held-out examples and scores them, beside the most frequent training output.

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
        examples = encode_examples(task, split, limit)
        ids, scores = bundle.generate(name, examples.inputs, examples.input_lengths)
        outputs = bundle.decode(name, ids)
        targets = examples.raw_targets
        guess = most_frequent(task.targets.read(e[task.targets.field]) for e in task.source.examples("train"))
        results[name] = {
            "split": split,
            "examples": len(examples),
            **score(task.metrics, outputs, targets),
            "baseline": score(task.metrics, [guess] * len(targets), targets),
        }
        if predictions is not None:
            _write_predictions(predictions / f"{name}.jsonl", split, examples, outputs, scores)
    return results


def _write_predictions(file, split, examples, outputs, scores):
    """One JSON object a line. A picture or a clip is named by its place in the split."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", encoding="utf-8") as lines:
        for row, (target, output, value) in enumerate(zip(examples.raw_targets, outputs, scores, strict=True)):
            shown = examples.raw_inputs[row] if examples.raw_inputs else f"{split}[{row}]"
            record = {"input": shown, "target": target, "output": output, "score": round(float(value), 4)}
            lines.write(json.dumps(record, ensure_ascii=False) + "\n")
