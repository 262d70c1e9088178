"""How fast steps follow one another."""

import collections
import time

STEPS = 100


class Pace:
    """Steps a second over the latest 100 steps. The first step, which is traced, counts only while it is the only one.

    Args:
        seconds: that earlier steps took.

    Attributes:
        seconds: that all steps took, up to the end of the latest one.
        steps_per_second: 0 before the first step.
    """

    def __init__(self, seconds=0.0):
        self._begin, self._earlier = time.monotonic(), seconds
        self._ends: collections.deque[float] = collections.deque(maxlen=STEPS + 1)
        self.seconds, self.steps_per_second = seconds, 0.0

    def step(self):
        """A step is done."""
        self._ends.append(time.monotonic())
        self.seconds = self._earlier + self._ends[-1] - self._begin
        steps, start = (len(self._ends) - 1, self._ends[0]) if len(self._ends) > 1 else (1, self._begin)
        self.steps_per_second = steps / max(self._ends[-1] - start, 1e-9)

    def pause(self, seconds):
        """Something else took these seconds between two steps."""
        self._begin += seconds
        self._ends = collections.deque((end + seconds for end in self._ends), maxlen=STEPS + 1)
