"""Task: a source of examples with an input feature, a target feature and metrics."""

import dataclasses
import re
from typing import Any

from multimodel.errors import UserError
from multimodel.search import Search
from multimodel.signature import Signature
from multimodel.tasks.sources import Source


@dataclasses.dataclass(frozen=True, eq=False)
class Task:
    """What to learn: to write `targets` from `inputs`.

    Args:
        name: letters, digits and underscores.
        source: a Source.
        inputs: a Text, Image or Audio feature.
        targets: a Text or Label feature.
        metrics: names from `multimodel.training.metrics`, the first one the headline.
        command: target space; tasks that write the same kind of output may share one. The task's name if None.
        max_unusable: share of a split's examples that may be unusable: they are left out and listed; more are an error.
        augmentation: Keras layers that change inputs in training, one after the other, and keep their shape; see
            `multimodel.tasks.augmentation`.
        search: how outputs are chosen, in evaluation, prediction and export alike.

    Raises:
        UserError: if the name is no identifier, a feature stands where its modality cannot, a share is none, or text is
            augmented.
    """

    name: str
    source: Source
    inputs: Any  # a feature; the __post_init__ says which
    targets: Any
    metrics: tuple[str, ...] = ("exact",)
    command: str | None = None
    max_unusable: float = 0.01
    augmentation: tuple = ()
    search: Search = dataclasses.field(default_factory=Search)

    def __post_init__(self):
        for role, value in (("name", self.name), ("command", self.command or self.name)):
            if not re.fullmatch(r"[A-Za-z]\w*", value, re.ASCII):
                raise UserError(
                    f"A task's {role} is letters, digits and underscores. Received: {role}={value!r}. "
                    f"Try {re.sub('[^A-Za-z0-9]+', '_', value).strip('_')!r}."
                )
        for role, feature, modalities in (
            ("inputs", self.inputs, ("text", "image", "audio")),
            ("targets", self.targets, ("text", "label")),
        ):
            if getattr(feature, "modality", None) not in modalities:
                raise UserError(
                    f"Task {self.name!r}: {role} must be a feature of {' or '.join(modalities)}. "
                    f"Received: {role}={feature!r}."
                )

        if not 0 <= self.max_unusable < 1:
            raise UserError(
                f"Task {self.name!r}: max_unusable is a share, at least 0 and below 1. "
                f"Received: max_unusable={self.max_unusable}."
            )
        if self.augmentation and self.inputs.modality == "text":
            raise UserError(
                f"Task {self.name!r}: pictures and clips are augmented. Received: augmentation of text. Leave it out."
            )

    def signature(self):
        """What the model must know of this task."""
        label = self.targets.modality == "label"
        return Signature(
            task=self.name,
            input_modality=self.inputs.modality,
            input_shape=self.inputs.shape,
            input_dtype=self.inputs.dtype,
            input_net=f"{self.inputs.net}_input",
            target_modality=self.targets.modality,
            target_length=self.targets.max_length,
            num_classes=self.targets.num_classes,
            output_net=f"{(self.command or self.name) if label else self.targets.net}_output",
            command=self.command or self.name,
            labels=self.targets.names if label else (),
            sample_rate=getattr(self.inputs, "sample_rate", None),
            search=self.search,
        )
