"""The timing of a worker that lives on a virtual loop."""

from __future__ import annotations

from headway.lab.virtual_loop import VirtualLoop
from headway.runtime.timing import Timing


class VirtualTiming(Timing):
    """Reads the loop's clock; pauses and limits are the loop's timers already.

    Args:
        loop: the loop on which the worker runs.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        """Seconds since the loop began."""
        return self._loop.time()

    def wall_at(self) -> int:
        """The virtual instant, in ms UTC."""
        return self._loop.clock()
