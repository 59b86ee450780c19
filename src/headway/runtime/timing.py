"""The runtime's clocks and pauses: the only place of this package that has any."""

from __future__ import annotations

import asyncio
import time


class Timing:
    """Real time. The simulator passes one of its own, and runs the same worker on virtual time."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; only differences mean anything."""
        return time.monotonic()

    def wall_at(self) -> int:
        """The caller's own time, in ms UTC; the store's time decides wherever it can."""
        return time.time_ns() // 1_000_000

    def wall_ns(self) -> int:
        """The same in ns, for what is compared with other programs' records."""
        return time.time_ns()

    async def pause(self, seconds: float) -> None:
        """Let others run for so long; 0 lets each of them run once."""
        await asyncio.sleep(seconds)

    def limit(self, seconds: float | None) -> asyncio.Timeout:
        """A block that ends with TimeoutError after so many seconds; None for no limit."""
        return asyncio.timeout(seconds)

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        """Wait for an event.

        Args:
            seconds: at most so long.

        Returns:
            Whether it is set.
        """
        try:
            async with self.limit(seconds):
                await event.wait()
        except TimeoutError:
            return event.is_set()
        return True


REAL = Timing()


async def pause(seconds: float) -> None:
    """Let others run for so long, in real time."""
    await REAL.pause(seconds)
