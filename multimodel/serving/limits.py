"""Limits: what a server takes, and how long it waits."""

import dataclasses

from multimodel.errors import UserError


@dataclasses.dataclass(frozen=True)
class Limits:
    """What one server takes.

    Args:
        body_mb: of one request.
        held_mb: of all requests that are being read or answered.
        rows: waiting in the queue, all requests and tasks together; also the most rows of one request.
        batch: rows that are answered together.
        read_seconds: until a request's header, and after that its body, have come in.
        answer_seconds: until it is answered.

    Raises:
        UserError: if a number is not above 0.
    """

    body_mb: float = 32
    held_mb: float = 512
    rows: int = 1024
    batch: int = 32
    read_seconds: float = 10
    answer_seconds: float = 60

    def __post_init__(self):
        for name, value in vars(self).items():
            if not value > 0:
                raise UserError(f"{name} is above 0. Received: {name}={value!r}.")
