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
        steps: batches, or Epochs; each step sees a share of every task.
        batch_size: examples of a step, all tasks together; "auto" for as many as memory takes.
        accumulation_steps: batches whose gradients are averaged to one update of the weights. `steps`, warm-up and
            schedule go on counting batches; batches after the last whole update move nothing.
        learning_rate: its peak, after `warmup_steps`.
        warmup_steps: until the peak; at most half of `steps`.
        schedule: after linear warm-up from 0, "cosine" goes down to 0 at the last step, "constant" stays at the peak,
            and "inverse_sqrt" is the peak times sqrt(warmup_steps / step). "exponential_tail" is that of the paper's
            first public code, warm-up included.
        ema: momentum of a moving average of the weights, such as 0.999, with which the model is scored and saved; 0
            for none. Over the first updates the momentum is lower, so that the average follows a short run too.
        betas, epsilon: of Adam.
        lazy_experts: whether Adam leaves an expert that no position of a step chose as it is, as the paper's first
            public code did.
        label_smoothing: share of the target's probability given to the other classes.
        clipnorm: largest global norm of a gradient.
        loss_weights: `{task: weight}` of its loss, for tasks whose weight is not 1; or "uncertainty" for weights that
            are learned (arXiv 1705.07115).
        validate_every: steps from one scoring of the `validation` splits to the next; 0 for none. The weights with the
            best score are then the ones that are kept.
        monitor: what the best is by: "mean", of the first metric of each task, or "TASK/METRIC".
        patience: validations without a better score until training stops; 0 for no early stop.
        seed: of weights, dropout, noise and batches.
        export: whether the run's folder gets a SavedModel too, in `export/`.
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
    batch_size: int | str = 128
    accumulation_steps: int = 1
    learning_rate: float = 2e-3
    warmup_steps: int = 100
    schedule: str = "cosine"
    ema: float = 0.0
    betas: tuple[float, float] = (0.9, 0.98)
    epsilon: float = 1e-9
    lazy_experts: bool = False
    label_smoothing: float = 0.1
    clipnorm: float = 1.0
    loss_weights: dict | str = dataclasses.field(default_factory=dict)
    validate_every: int = 0
    monitor: str = "mean"
    patience: int = 0
    seed: int = 1
    export: bool = False
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
            ("accumulation_steps", 1, 10**6),
            ("learning_rate", 0, 10),
            ("warmup_steps", 0, 10**9),
            ("ema", 0, 0.999999),
            ("label_smoothing", 0, 0.99),
            ("epsilon", 0, 1),
            ("clipnorm", 1e-9, 10**9),
            ("validate_every", 0, 10**9),
            ("patience", 0, 10**9),
            ("seed", 0, 2**32 - 1),
        ):
            value = getattr(self, field)
            if isinstance(value, Epochs) or (field, value) == ("batch_size", "auto"):
                continue
            if not isinstance(value, int | float) or not low <= value <= high:
                rule = f"between {low} and {high}{', or auto' if field == 'batch_size' else ''}"
                raise UserError(f"{field} is {rule}. Received: {field}={value!r}.")
        if not isinstance(self.steps, Epochs) and self.accumulation_steps > self.steps:
            raise UserError(
                f"A run makes an update at least. Received: accumulation_steps={self.accumulation_steps}, "
                f"steps={self.steps}. Accumulate over fewer batches, or take more steps."
            )
        check_schedule(self.schedule)
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise UserError(f"Adam takes two betas of at least 0 and below 1. Received: betas={self.betas!r}.")
        self._check_loss_weights()
        for net in self.nets:
            if net not in self.mixture.net_names():
                raise unknown("net", net, self.mixture.net_names())

    def _check_loss_weights(self):
        if isinstance(self.loss_weights, str):
            if self.loss_weights != "uncertainty":
                raise unknown("loss_weights", self.loss_weights, ("uncertainty",))
            return
        for task, weight in self.loss_weights.items():
            if task not in self.mixture.tasks:
                raise unknown("task", task, self.mixture.tasks)
            if not 0 <= weight <= 10**6:
                raise UserError(f"A loss weight is at least 0. Received: {weight!r} for task {task!r}.")
