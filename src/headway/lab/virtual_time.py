"""Virtual time: an event loop whose clock jumps to the next timer as soon as nothing runs.

A pause of an hour takes no time, and the order of events depends on nothing outside. Nothing on
such a loop may wait for the real world: there are no threads, sockets or processes on it.
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

# Floats of seconds miss whole milliseconds by far less than this.
_NOISE_MS = 1e-3


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on which time passes only while everything waits.

    Args:
        start_at: the instant at which it begins, ms UTC.
    """

    def __init__(self, start_at: int) -> None:
        self.start_at = start_at
        self.passed_ms = 0
        super().__init__(_Leap(self))
        self._clock_resolution = _NOISE_MS / 1000

    def time(self) -> float:
        """Seconds that have passed, in whole milliseconds."""
        return self.passed_ms / 1000

    def clock(self) -> int:
        """Return the instant now, in ms UTC: the clock that a store is given."""
        return self.start_at + self.passed_ms

    def run_in_executor(self, executor: object, func: object, *args: object) -> NoReturn:
        """Refuse: a thread's work takes real time, which is none here.

        Raises:
            InvariantBroken: always.
        """
        del executor, args
        message = f"{func!r} was given to a thread, where virtual time does not pass"
        raise InvariantBroken(message, hint="only async code can be simulated")


class _Leap(selectors.DefaultSelector):
    """Where a loop would sleep, it moves the loop's time on instead."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            message = "everything waits for something that can no longer happen"
            raise InvariantBroken(message, hint="some event is never set")
        if timeout > 0:
            # Up to a whole millisecond: a timer never fires before its time.
            self._loop.passed_ms += math.ceil(timeout * 1000 - _NOISE_MS)
        return []


def run_virtually(
    main: Callable[[VirtualLoop], Coroutine[Any, Any, Result]], start_at: int
) -> Result:
    """Run a coroutine, made with the loop that it runs on, to its end in virtual time.

    Args:
        start_at: the instant at which it begins, ms UTC.

    Raises:
        InvariantBroken: everything waited for something that could no longer happen.
    """
    loop = VirtualLoop(start_at)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main(loop))


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
        """Return the virtual instant, in ms UTC."""
        return self._loop.clock()
