"""Search: how an output is chosen among all that a decoder could write."""

import dataclasses

from multimodel.errors import UserError


@dataclasses.dataclass(frozen=True)
class Search:
    """Greedy by default; a beam, if it has more than one; sampling, if it has a temperature. Label tasks need none.

    Args:
        beams: unfinished hypotheses kept at each position; 1 is greedy.
        length_penalty: alpha: finished hypotheses are ordered by log P / ((5 + length) / 6)^alpha (arXiv 1609.08144,
            equation 14, without coverage). 0 orders them by probability; more favours longer ones.
        temperature: draws each id from softmax(logits / temperature); 0 does not draw.
        top_k: draws among the so many most probable ids; 0 for all.
        top_p: draws among the fewest ids that have so much probability together (arXiv 1904.09751); 1 for all.
        seed: of what is drawn. One input and one seed give the same output in any batch.
        min_length: ids at least, before the end.
        max_length: ids at most, the end included; the task's own limit holds besides.

    Raises:
        UserError: if a number is out of its range, or beams and sampling are mixed.
    """

    beams: int = 1
    length_penalty: float = 0.6
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    min_length: int = 0
    max_length: int | None = None

    def __post_init__(self):
        for name, least in (("beams", 1), ("length_penalty", 0), ("temperature", 0), ("top_k", 0), ("min_length", 0)):
            if not getattr(self, name) >= least:
                raise UserError(f"{name} is at least {least}. Received: {name}={getattr(self, name)!r}.")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top_p is above 0 and at most 1. Received: top_p={self.top_p!r}.")
        if self.max_length is not None and self.max_length <= self.min_length:
            raise UserError(
                f"max_length leaves room for min_length ids and the end. "
                f"Received: max_length={self.max_length}, min_length={self.min_length}."
            )
        if self.temperature and self.beams > 1:
            raise UserError(
                f"An output is searched for by beams or drawn. Received: beams={self.beams}, "
                f"temperature={self.temperature}. Leave one of them out."
            )
        if not self.temperature and (self.top_k or self.top_p < 1):
            raise UserError(
                f"top_k and top_p limit what is drawn. Received: top_k={self.top_k}, top_p={self.top_p}, and no "
                f"temperature. Give one, such as 1.0."
            )
