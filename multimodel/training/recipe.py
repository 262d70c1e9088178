"""Recipe: what to train, in values. No behaviour."""

import dataclasses
import re

from multimodel.body import Body
from multimodel.errors import UserError, unknown
from multimodel.tasks.mixture import Epochs, Mixture
from multimodel.training.schedule import check_schedule


@dataclasses.dataclass(frozen=True)
class Recipe:
    """All that a run is made from.

    Args:
        name: of the recipe; the default folder of its run is `runs/NAME`.
        mixture: tasks and their rates.
        body: shared by all tasks.
        steps: optimizer steps, or Epochs; each step sees a share of every task.
        batch_size: examples of a step, all tasks together.
        learning_rate: its peak, after `warmup_steps`.
        warmup_steps: until the peak; at most half of `steps`.
        schedule: "cosine", linear warm-up from 0 and a cosine down to 0 at the last step; or "exponential_tail", that
            of the paper's first public code.
        betas, epsilon: of Adam.
        lazy_experts: whether Adam leaves an expert that no position of a step chose as it is, as the paper's first
            public code did.
        label_smoothing: share of the target's probability given to the other classes.
        clipnorm: largest global norm of a gradient.
        loss_weights: `{task: weight}` of its loss, for tasks whose weight is not 1.
        validate_every: steps from one scoring of the `validation` splits to the next; 0 for none. The weights with the
            best score are then the ones that are kept.
        monitor: what the best is by: "mean", of the first metric of each task, or "TASK/METRIC".
        patience: validations without a better score until training stops; 0 for no early stop.
        seed: of weights, dropout, noise and batches.
        nets: `{name: net}` for nets that differ from the default of their modality. Names are `image_input`,
            `audio_input`, `VOCABULARY_input`, `VOCABULARY_output` and `COMMAND_output` of label tasks.
        description, data, time: a line each, for `multimodel recipes`.
        scores: `{task: expected headline score}`, measured.
        origin: shipped name or file that it was loaded from; set by whoever loads it.

    Raises:
        UserError: if a number is out of its range, or a schedule, a net or a task of `loss_weights` is unknown.
    """

    name: str
    mixture: Mixture
    body: Body
    steps: int | Epochs
    batch_size: int = 128
    learning_rate: float = 2e-3
    warmup_steps: int = 100
    schedule: str = "cosine"
    betas: tuple[float, float] = (0.9, 0.98)
    epsilon: float = 1e-9
    lazy_experts: bool = False
    label_smoothing: float = 0.1
    clipnorm: float = 1.0
    loss_weights: dict = dataclasses.field(default_factory=dict)
    validate_every: int = 0
    monitor: str = "mean"
    patience: int = 0
    seed: int = 1
    nets: dict = dataclasses.field(default_factory=dict)
    description: str = ""
    data: str = ""
    time: str = ""
    scores: dict = dataclasses.field(default_factory=dict)
    origin: str = ""

    def __post_init__(self):
        if not re.fullmatch(r"[\w.-]+", self.name):
            raise UserError(
                f"A recipe's name is also a folder's. Received: name={self.name!r}. Use letters and digits."
            )
        for field, low, high in (
            ("steps", 1, 10**9),
            ("batch_size", 1, 10**6),
            ("learning_rate", 0, 10),
            ("warmup_steps", 0, 10**9),
            ("label_smoothing", 0, 0.99),
            ("epsilon", 0, 1),
            ("clipnorm", 1e-9, 10**9),
            ("validate_every", 0, 10**9),
            ("patience", 0, 10**9),
            ("seed", 0, 2**32 - 1),
        ):
            value = getattr(self, field)
            if isinstance(value, Epochs):
                continue
            if not low <= value <= high:
                raise UserError(f"{field} is between {low} and {high}. Received: {field}={value!r}.")
        check_schedule(self.schedule)
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise UserError(f"Adam takes two betas of at least 0 and below 1. Received: betas={self.betas!r}.")
        for task, weight in self.loss_weights.items():
            if task not in self.mixture.tasks:
                raise unknown("task", task, self.mixture.tasks)
            if not 0 <= weight <= 10**6:
                raise UserError(f"A loss weight is at least 0. Received: {weight!r} for task {task!r}.")
        for net in self.nets:
            if net not in self.mixture.net_names():
                raise unknown("net", net, self.mixture.net_names())
