"""Virtual time: an event loop whose clock jumps to the next timer whenever all tasks wait.

A pause of an hour takes no real time, and the order of events is deterministic. Tasks must not wait
for the real world: the loop has no threads, sockets or processes.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, TypeVar

from headway.core.errors import InvariantBroken
from headway.runtime.timing import Timing

Result = TypeVar("Result")

# The rounding error of seconds as floats is far smaller than this.
_NOISE_MS = 1e-3


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on which time passes only while all tasks wait.

    Args:
        start_at: the time at its start, in ms UTC.

    Attributes:
        passed_ms: virtual milliseconds since the start.
    """

    def __init__(self, start_at: int) -> None:
        self.start_at = start_at
        self.passed_ms = 0
        super().__init__(_Leap(self))
        self._clock_resolution = _NOISE_MS / 1000

    def time(self) -> float:
        """Return the seconds since the start, in whole milliseconds."""
        return self.passed_ms / 1000

    def clock(self) -> int:
        """Return the virtual time in ms UTC; passed to stores as their clock."""
        return self.start_at + self.passed_ms

    def run_in_executor(self, executor: object, func: object, *args: object) -> NoReturn:
        """Refuse, because a thread would take real time.

        Raises:
            InvariantBroken: always.
        """
        del executor, args
        message = f"{func!r} was passed to a thread, where virtual time does not pass"
        raise InvariantBroken(message, hint="only async code can be simulated")


class _Leap(selectors.DefaultSelector):
    """A selector that advances the loop's time instead of sleeping."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            message = "all tasks wait for something that can no longer happen"
            raise InvariantBroken(message, hint="some event is never set")
        if timeout > 0:
            # Rounded up to a whole millisecond, so that no timer fires early.
            self._loop.passed_ms += math.ceil(timeout * 1000 - _NOISE_MS)
        return []


def run_virtually(
    main: Callable[[VirtualLoop], Coroutine[Any, Any, Result]], start_at: int
) -> Result:
    """Run a coroutine to completion in virtual time.

    Args:
        main: called with the loop; returns the coroutine.
        start_at: the time at its start, in ms UTC.

    Raises:
        InvariantBroken: all tasks waited for something that could no longer happen.
    """
    loop = VirtualLoop(start_at)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main(loop))


class VirtualTiming(Timing):
    """Timing on a virtual loop's clock; pauses and limits use the loop's timers in any case."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        """Return the seconds since the loop's start."""
        return self._loop.time()

    def wall_at(self) -> int:
        """Return the virtual time in ms UTC."""
        return self._loop.clock()
