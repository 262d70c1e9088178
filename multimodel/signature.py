"""Signature: all that the model knows of a task.

Shape letters, used everywhere: `b` batch of one task, `n` input positions, `m` target positions, `d` width of the
body, `v` classes of an output, `h w c` image, `t f` audio frames and bins, `e k s` experts, chosen ones, tokens.
"""

import dataclasses

from multimodel.search import Search


@dataclasses.dataclass(frozen=True)
class Signature:
    """What a task reads and writes, in numbers and names that fit into JSON.

    Args:
        task: the task's name.
        input_modality: "text", "image" or "audio".
        input_shape: of one encoded input: `(n,)` ids, `(h, w, 3)` pixels or `(samples,)`.
        input_dtype: of the encoded input.
        input_net: name of the net that reads it; tasks that name the same net share it.
        target_modality: "text" or "label".
        target_length: m, the most positions of a target; 1 for labels.
        num_classes: v, subwords of the vocabulary or labels.
        output_net: name of the net that writes it.
        command: target space; tasks that name the same one share its command vector.
        labels: names of the classes, for label tasks.
        sample_rate: samples per second, for audio.
        search: how outputs are chosen where nothing else is asked for.
    """

    task: str
    input_modality: str
    input_shape: tuple[int, ...]
    input_dtype: str
    input_net: str
    target_modality: str
    target_length: int
    num_classes: int
    output_net: str
    command: str
    labels: tuple[str, ...] = ()
    sample_rate: int | None = None
    search: Search = dataclasses.field(default_factory=Search)

    def to_json(self):
        """A dict of JSON values; `from_json` gives the signature back."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values):
        tuples = {name: tuple(values[name]) for name in ("input_shape", "labels")}
        return cls(**values | tuples | {"search": Search(**values.get("search", {}))})
