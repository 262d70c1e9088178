"""Parity: an export against the model that it was made from, on the same inputs."""

from multimodel.errors import UserError

TOLERANCE = 1e-4  # nats


class DisagreementError(UserError):
    """An export that does not give what its model gives."""

    exit_code = 3


def compare(model, exported, values, searches):
    """Asks both predictors the same.

    Args:
        model: a Bundle.
        exported: an Exported.
        values: `{task: canonical values}`.
        searches: `{task: Search}` of the export.

    Returns:
        `{task: {"examples", "equal", "largest_score_difference"}}`, the latter in nats.

    Raises:
        DisagreementError: if an output differs at all, or a score by more than TOLERANCE.
    """
    proof = {}
    for task, inputs in values.items():
        expected, given = model.try_predict(task, inputs, searches[task]), exported.try_predict(task, inputs)
        pairs = list(zip(expected, given, strict=True))
        differences = [abs(a.score - b.score) for a, b in pairs if a.score is not None and b.score is not None]
        proof[task] = {
            "examples": len(pairs),
            "equal": sum((a.output, bool(a.error)) == (b.output, bool(b.error)) for a, b in pairs),
            "largest_score_difference": max(differences, default=0.0),
        }
        for row, (a, b) in enumerate(pairs):
            apart = a.score is not None and b.score is not None and not abs(a.score - b.score) <= TOLERANCE
            if (a.output, bool(a.error)) != (b.output, bool(b.error)) or apart:
                raise DisagreementError(
                    f"An export gives what its model gives. Received: task {task!r}, held-out example {row}: "
                    f"{_shown(a)} of the model, {_shown(b)} of the export. Nothing was exported."
                )
    return proof


def _shown(prediction):
    return prediction.error or f"{prediction.output!r} ({prediction.score:.5f})"
