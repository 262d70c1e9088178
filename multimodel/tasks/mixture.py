"""Mixture: tasks and the rates at which they share a batch."""

import dataclasses
import functools
import math
from typing import Any

from multimodel.errors import UserError, unknown


class Mixture:
    """Tasks and their rates.

    Args:
        rates: `{task or mixture: rate}`; every batch holds each one's share, `rate / sum of rates` of it. The share of
            a mixture inside is divided by its own rates.

    Raises:
        UserError: if there is no task, two share a name, a rate is not positive, or tasks that share a net disagree.
    """

    def __init__(self, rates):
        for part, rate in rates.items():
            if not 0 < rate < math.inf:
                name = repr(part.name) if hasattr(part, "name") else "a mixture"
                raise UserError(
                    f"A rate is positive and finite. Received: {rate} for task {name}. Leave the task out instead."
                )
        self._take(list(rates), lambda part: rates[part])

    @classmethod
    def by_size(cls, parts, temperature=1.0, cap=None):
        """Tasks at rates of `min(training examples, cap) ** (1 / temperature)`, as arXiv 1910.10683, section 3.5.2.

        Args:
            parts: a list of tasks and mixtures. Examples are counted when rates are first needed.
            temperature: 1 for rates in proportion to size; the higher, the more equal.
            cap: examples that a task counts for at most; without limit if None.

        Raises:
            UserError: as `Mixture` does; if `temperature` is below 1, or `cap` is.
        """
        if temperature < 1 or (cap is not None and cap < 1):
            raise UserError(
                f"A temperature is at least 1, and so is a cap. Received: temperature={temperature}, cap={cap}."
            )
        mixture = cls.__new__(cls)
        mixture._take(list(parts), lambda part: min(_size(part), cap or math.inf) ** (1 / temperature))
        return mixture

    def _take(self, parts: list, rate_of):
        self._parts, self._rate_of = parts, rate_of
        tasks = [task for part in parts for task in (part.tasks.values() if isinstance(part, Mixture) else [part])]
        self.tasks: dict[str, Any] = {task.name: task for task in tasks}
        if not tasks or len(self.tasks) < len(tasks):
            raise UserError(
                f"A mixture has tasks of different names. Received: {[task.name for task in tasks]}. Rename one."
            )
        self._check_nets()

    @functools.cached_property
    def rates(self):
        """`{name: rate}` of all tasks, also of those in mixtures inside."""
        rates: dict[str, float] = {}
        for part in self._parts:
            rate = self._rate_of(part)
            if isinstance(part, Mixture):
                total = sum(part.rates.values())
                rates |= {name: rate * inner / total for name, inner in part.rates.items()}
            else:
                rates[part.name] = rate
        return rates

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
        """The mixture of some of its tasks. What is left keeps its rate, a mixture inside as a whole."""
        kept, rate_of = {}, self._rate_of
        for part in self._parts:
            if isinstance(part, Mixture) and any(name in part.tasks for name in names):
                kept[part.only(names)] = part
            elif not isinstance(part, Mixture) and part.name in names:
                kept[part] = part
        mixture = Mixture.__new__(Mixture)
        mixture._take(list(kept), lambda part: rate_of(kept[part]))
        return mixture

    def net_names(self):
        """Names of the nets that its tasks read and write with."""
        signatures = [task.signature() for task in self.tasks.values()]
        return {name for signature in signatures for name in (signature.input_net, signature.output_net)}

    def require_room(self, batch_size):
        """Raises a UserError if the batch is smaller than the number of tasks."""
        if batch_size < len(self.tasks):
            raise UserError(
                f"A batch holds an example of every task. Received: batch_size={batch_size} for "
                f"{len(self.tasks)} tasks. Choose a batch_size of at least {len(self.tasks)}."
            )

    def shares(self, batch_size):
        """`{name: examples}` of one batch: at least one each, the rates as nearly as whole numbers can.

        Raises:
            UserError: if the batch is smaller than the number of tasks.
        """
        self.require_room(batch_size)
        total = sum(self.rates.values())
        exact = {name: batch_size * rate / total for name, rate in self.rates.items()}
        shares = {name: max(1, int(value)) for name, value in exact.items()}
        while sum(shares.values()) != batch_size:
            step = 1 if sum(shares.values()) < batch_size else -1
            movable = [name for name in shares if shares[name] + step >= 1]
            name = max(movable, key=lambda n: step * (exact[n] - shares[n]))
            shares[name] += step
        return shares


@dataclasses.dataclass(frozen=True)
class Epochs:
    """How long to train: until tasks have been through their examples. The others begin theirs anew, or end amid them.

    Args:
        count: how many times; a fraction is allowed.
        of: "every" for until every task has, "first" for until the first one has, or the name of a task.

    Raises:
        UserError: if `count` is not positive.
    """

    count: float = 1
    of: str = "every"

    def __post_init__(self):
        if not 0 < self.count < math.inf:
            raise UserError(f"Epochs are positive and finite. Received: count={self.count}.")

    def steps(self, sizes, shares):
        """The number of steps.

        Args:
            sizes: `{task: examples}`.
            shares: `{task: examples of a step}`.

        Raises:
            UserError: if `of` is no task.
        """
        needed = {name: math.ceil(self.count * sizes[name] / shares[name]) for name in sizes}
        if self.of not in ("every", "first", *needed):
            raise unknown("task", self.of, ["every", "first", *needed])
        return {"every": max(needed.values()), "first": min(needed.values())}.get(self.of) or needed[self.of]


def _size(part):
    """Training examples of a task or of all tasks of a mixture."""
    if isinstance(part, Mixture):
        return sum(map(_size, part.tasks.values()))
    return len(part.source.examples("train"))
