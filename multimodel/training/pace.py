"""How fast steps follow one another."""

import collections
import time

STEPS = 100


class Pace:
    """Steps a second over the latest 100 steps. The first step, which is traced, counts only while it is the only one.

    Attributes:
        seconds: from the beginning to the end of the latest step.
        steps_per_second: 0 before the first step.
    """

    def __init__(self):
        self._begin = time.monotonic()
        self._ends: collections.deque[float] = collections.deque(maxlen=STEPS + 1)
        self.seconds = self.steps_per_second = 0.0

    def step(self):
        """A step is done."""
        self._ends.append(time.monotonic())
        self.seconds = self._ends[-1] - self._begin
        steps, start = (len(self._ends) - 1, self._ends[0]) if len(self._ends) > 1 else (1, self._begin)
        self.steps_per_second = steps / max(self._ends[-1] - start, 1e-9)
