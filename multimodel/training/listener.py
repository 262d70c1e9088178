"""What is told how training goes."""


class Listener:
    """Told by History how training goes; does nothing by itself."""

    def begin(self, step, steps):
        """Training begins after `step` of `steps` steps: 0, or where it goes on."""

    def step(self, glance):
        """A step is done.

        Args:
            glance: a record without what is of intervals alone: `{"step", "seconds", "steps_per_second", "loss",
                "accuracy", "examples", "tokens", "epochs"}`; losses and accuracies are means since the latest record.
        """

    def interval(self, record):
        """An interval is over.

        Args:
            record: a line of `history.jsonl`.
        """

    def validation(self, record):
        """The validation splits were scored.

        Args:
            record: `{"step", "validation": {task: {metric: value}}, ...}`, another line of `history.jsonl`.
        """

    def close(self):
        """Training is over, or has failed; may be told more than once."""
