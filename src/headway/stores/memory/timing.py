"""The clock of this machine, and a step's time: the highest that was ever seen."""

from __future__ import annotations

import time

from headway.contract.clock import Clock


def machine_clock() -> int:
    """Milliseconds since 1970, as this machine tells them."""
    return time.time_ns() // 1_000_000


class StepTime:
    """The time of the step that is under way; never less than that of an earlier one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.now = 0

    def begin(self) -> None:
        """A step begins."""
        self.now = max(self.now, self._clock())

    def ahead_ms(self) -> int:
        """By how much the time is ahead of the clock."""
        return max(0, self.now - self._clock())
