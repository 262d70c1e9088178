"""Mixture: tasks and the rates at which they share a batch."""

import math

from multimodel.errors import UserError


class Mixture:
    """Tasks and their rates.

    Args:
        rates: `{task: rate}`; every batch holds each task's share, `rate / sum of rates` of it.

    Raises:
        UserError: if there is no task, two share a name, a rate is not positive, or tasks that share a net disagree.
    """

    def __init__(self, rates):
        self.rates = {task.name: rate for task, rate in rates.items()}
        self.tasks = {task.name: task for task in rates}
        if not rates or len(self.tasks) < len(rates):
            raise UserError(
                f"A mixture has tasks of different names. Received: {[task.name for task in rates]}. Rename one."
            )
        for name, rate in self.rates.items():
            if not 0 < rate < math.inf:
                raise UserError(
                    f"A rate is positive and finite. Received: {rate} for task {name!r}. Leave the task out instead."
                )
        self._check_nets()

    def _check_nets(self):
        """Tasks that name the same net must agree in what it reads or writes."""
        users: dict[str, tuple] = {}
        for task in self.tasks.values():
            signature = task.signature()
            for net, feature in ((signature.input_net, task.inputs), (signature.output_net, task.targets)):
                # What a net is made for: a vocabulary, a sample rate, or names of classes.
                kind = feature.modality, *(getattr(feature, a, None) for a in ("vocabulary", "sample_rate", "names"))
                other, known = users.setdefault(net, (task.name, kind))
                if known != kind:
                    raise UserError(
                        f"Tasks that share a net agree in modality, vocabulary, sample rate and labels. Received: "
                        f"{other!r} and {task.name!r}, which share {net!r}. Give the vocabulary or command of one "
                        f"another name."
                    )

    def only(self, names):
        """The mixture of some of its tasks, at their rates."""
        return Mixture({self.tasks[name]: self.rates[name] for name in self.tasks if name in names})

    def net_names(self):
        """Names of the nets that its tasks read and write with."""
        signatures = [task.signature() for task in self.tasks.values()]
        return {name for signature in signatures for name in (signature.input_net, signature.output_net)}

    def shares(self, batch_size):
        """`{name: examples}` of one batch: at least one each, the rates as nearly as whole numbers can.

        Raises:
            UserError: if the batch is smaller than the number of tasks.
        """
        if batch_size < len(self.tasks):
            raise UserError(
                f"A batch holds an example of every task. Received: batch_size={batch_size} for "
                f"{len(self.tasks)} tasks. Choose a batch_size of at least {len(self.tasks)}."
            )
        total = sum(self.rates.values())
        exact = {name: batch_size * rate / total for name, rate in self.rates.items()}
        shares = {name: max(1, int(value)) for name, value in exact.items()}
        while sum(shares.values()) != batch_size:
            step = 1 if sum(shares.values()) < batch_size else -1
            movable = [name for name in shares if shares[name] + step >= 1]
            name = max(movable, key=lambda n: step * (exact[n] - shares[n]))
            shares[name] += step
        return shares
