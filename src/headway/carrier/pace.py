"""The pace of the simulated world: its time, which may go faster than real time."""

from __future__ import annotations

import asyncio

from headway.runtime.timing import Timing


class Pace:
    """The pace of one world.

    Attributes:
        timing: real or virtual time.
        speed: how many times faster than that it goes.
    """

    def __init__(self, timing: Timing, speed: float) -> None:
        self.timing = timing
        self.speed = speed

    def now_at(self) -> int:
        """The moment, in ms UTC; moments are told as they are, whatever the speed."""
        return self.timing.wall_at()

    def passed_ms(self) -> float:
        """The world's own time; only differences mean anything."""
        return self.timing.monotonic() * 1000 * self.speed

    async def pause(self, span_ms: float) -> None:
        """Lets so much of the world's time pass."""
        await self.timing.pause(span_ms / 1000 / self.speed)

    async def wait(self, event: asyncio.Event, span_ms: float) -> bool:
        """Waits for an event for at most so much of the world's time; whether it is set."""
        return await self.timing.wait(event, span_ms / 1000 / self.speed)
