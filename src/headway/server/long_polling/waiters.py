"""Waiters: long polls for the same lanes, served in the order in which they came.

One of them looks at a time, while there is nothing to find: then they share one wait on the store,
however many they are. When it ends, the first looks. A waiter that finds something wakes two more,
so that the number of those that look doubles while there is work; one that finds nothing wakes
none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count

from sortedcontainers import SortedDict

from headway.contract.claims import ClaimReply
from headway.core.errors import HeadwayError
from headway.runtime.timing import PASSING, Timing

WIDTH = 16
"""The most that look at once."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds before the next one looks, after a store that could not answer."""

_log = logging.getLogger("headway.server")


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaimAttempt:
    """The result of one claim for a poll.

    Attributes:
        request: the claim's number.
        is_repeat: the jobs were handed out before, in answer to the same number.
    """

    reply: ClaimReply
    lanes: tuple[str, ...]
    request: int
    is_repeat: bool = False

    @property
    def is_used_up(self) -> bool:
        """Whether the claim's number was used before, and so brought nothing.

        The reply to a claim that left flows unexamined may now and then look the same; to claim
        again is right then, too.
        """
        reply = self.reply
        return reply.again and not reply.after and not reply.jobs and reply.next_at == reply.now

    @property
    def is_final(self) -> bool:
        """Whether it is an answer; else there is nothing to be found."""
        return bool(self.reply.jobs) or self.is_used_up


Attempt = Callable[[], Awaitable[ClaimAttempt]]
"""Claims once for a waiter, from all flows of its lanes."""
WaitForWork = Callable[[ClaimAttempt], Awaitable[None]]
"""Sleeps until there may be something that a look did not find."""


class Waiter:
    """One long poll that waits."""

    __slots__ = ("called", "is_cancelled", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.called: asyncio.Future[bool] | None = None
        self.is_cancelled = False


class Waiters:
    """The long polls that wait for the same lanes.

    Attributes:
        heard: the last claim that found nothing; None if there was none.
        heard_at: when that was, by the monotonic clock.
    """

    def __init__(self, sleep: WaitForWork, timing: Timing) -> None:
        """Start without waiters.

        Args:
            sleep: woken by what was committed after the look, or a little before.
        """
        self.last_empty: ClaimAttempt | None = None
        self.last_empty_at = 0.0
        self._sleep = sleep
        self._timing = timing
        self._numbers = count()
        self._waiting: SortedDict[int, asyncio.Future[bool]] = SortedDict()
        self._looking = 0
        self._wakes = 0
        self._sleeper: asyncio.Task[None] | None = None
        self._pause = FIRST_PAUSE
        self._is_closed = False

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._waiting)

    @property
    def present(self) -> int:
        """How many wait or look."""
        return len(self._waiting) + self._looking

    @property
    def is_idle(self) -> bool:
        """Whether there are no waiters and no claims in progress."""
        return not self._waiting and not self._looking

    def add(self) -> Waiter:
        """Add a waiter at the end."""
        return Waiter(next(self._numbers))

    async def serve(self, place: Waiter, look: Attempt, seconds: float) -> ClaimAttempt | None:
        """Wait for something to be found.

        Args:
            place: of the one who waits.
            look: called when it is this one's turn, once or more often; is never cut short by
                the end of the wait.
            seconds: the longest that it waits for a turn.

        Returns:
            What it found; None when the time is up, or it was cancelled.

        Raises:
            StoreError: the store could not answer when it looked.
        """
        until = self._timing.monotonic() + seconds
        if self.is_idle:
            self._looking += 1
        elif not await self._turn(place, until):
            return None
        while True:
            found = await self._look(look)
            if found.is_final:
                return found
            if not await self._turn(place, until):
                return None

    def wake(self) -> None:
        """Wake the first waiter; one that claims now claims again."""
        self._wakes += 1
        if self._sleeper is not None:
            self._sleeper.cancel()
            self._sleeper = None
            self._call(1)

    def cancel(self, place: Waiter) -> None:
        """Cancel one wait; one that claims now ends when it has found nothing."""
        place.is_cancelled = True
        if place.called is not None and not place.called.done():
            place.called.set_result(False)

    def cancel_all(self) -> None:
        """Cancel all waits."""
        self._is_closed = True
        for called in self._waiting.values():
            if not called.done():
                called.set_result(False)
        self._waiting.clear()
        self._update_sleeper()

    async def _look(self, look: Attempt) -> ClaimAttempt:
        """Look; the turn is over when this returns or raises."""
        try:
            found = await self._look_at_all(look)
        except BaseException as error:
            self._looking -= 1
            if isinstance(error, PASSING):
                # The others will hardly fare better: each has to wait a little longer.
                self.last_empty = None
                self._update_sleeper()
            else:
                self._call(1)
            raise
        self._looking -= 1
        self._pause = FIRST_PAUSE
        if found.is_final:
            self._call(2)
        elif self.last_empty is None or found.reply.seen >= self.last_empty.reply.seen:
            self.last_empty, self.last_empty_at = found, self._timing.monotonic()
        return found

    async def _look_at_all(self, look: Attempt) -> ClaimAttempt:
        """Look, and once more if there came to be more to look at meanwhile."""
        while True:
            wakes = self._wakes
            found = await look()
            if found.is_final or wakes == self._wakes:
                return found

    async def _turn(self, place: Waiter, until: float) -> bool:
        """Wait to be called.

        Returns:
            Whether it was; else the time is up, or it was cancelled.

        Raises:
            CancelledError: it was cancelled; a turn that it had been given is passed on.
        """
        left = until - self._timing.monotonic()
        if left <= 0 or self._is_closed or place.is_cancelled:
            self._update_sleeper()
            return False
        called = place.called = asyncio.get_running_loop().create_future()
        self._waiting[place.number] = called
        self._update_sleeper()
        try:
            async with self._timing.limit(left):
                return await called
        except TimeoutError:
            # A turn that was given at the last moment is used.
            return _was_called(called)
        except asyncio.CancelledError:
            if _was_called(called):
                self._looking -= 1
                self._call(1)
            raise
        finally:
            self._waiting.pop(place.number, None)
            self._update_sleeper()

    def _call(self, most: int) -> None:
        """Give a turn to those who have waited longest."""
        while most > 0 and self._waiting and self._looking < WIDTH:
            _, called = self._waiting.popitem(0)
            if not called.done():  # else it is about to leave
                self._looking += 1
                most -= 1
                called.set_result(True)
        self._update_sleeper()

    def _update_sleeper(self) -> None:
        """Keep one wait on the store if, and only if, there are waiters and none claims now."""
        wanted = bool(self._waiting) and not self._looking
        if wanted and self._sleeper is None:
            self._sleeper = asyncio.get_running_loop().create_task(
                self._sleep_once(), name="a line of long polls"
            )
        elif not wanted and self._sleeper is not None:
            self._sleeper.cancel()
            self._sleeper = None

    async def _sleep_once(self) -> None:
        last_empty = self.last_empty
        try:
            if last_empty is None:
                await self._back_off()
            else:
                await self._sleep(last_empty)
        except HeadwayError as error:
            _log.warning("a line of long polls cannot sleep: %s", error)
            await self._back_off()
        self._sleeper = None
        self._call(1)

    async def _back_off(self) -> None:
        """Pause after a failure of the store."""
        seconds, self._pause = self._pause, min(self._pause * 2, LONGEST_PAUSE)
        await self._timing.pause(seconds)


def _was_called(called: asyncio.Future[bool]) -> bool:
    return called.done() and not called.cancelled() and called.result()
