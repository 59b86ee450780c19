"""A line: those who wait for the same lanes, served in the order in which they came.

One of them looks at a time, while there is nothing to find: then the line sleeps as one, however
long it is. When it is woken, the first looks. Whoever finds something calls two more, so that the
number of those who look doubles while there is work; whoever finds nothing calls nobody.
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
from headway.runtime.persist import PASSING
from headway.runtime.timing import Timing

WIDTH = 16
"""The most that look at once."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds before the next one looks, after a store that could not answer."""

_log = logging.getLogger("headway.server")


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """What somebody found.

    Attributes:
        reply: of the claim.
        lanes: that were claimed from.
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


Looking = Callable[[], Awaitable[Look]]
"""Claims once for somebody who waits, all flows of its lanes."""
Sleep = Callable[[Look], Awaitable[None]]
"""Sleeps until there may be something that a look did not find."""


class Place:
    """A place in a line."""

    __slots__ = ("called", "is_given_up", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.called: asyncio.Future[bool] | None = None
        self.is_given_up = False


class Line:
    """Those who wait for the same lanes.

    Attributes:
        heard: the last look that found nothing; None if nobody knows that there is nothing.
        heard_at: when that was, by the monotonic clock.
    """

    def __init__(self, sleep: Sleep, timing: Timing) -> None:
        """An empty line.

        Args:
            sleep: woken by what was committed after the look, or a little before.
            timing: for limits and pauses.
        """
        self.heard: Look | None = None
        self.heard_at = 0.0
        self._sleep = sleep
        self._timing = timing
        self._numbers = count()
        self._waiting: SortedDict[int, asyncio.Future[bool]] = SortedDict()
        self._looking = 0
        self._stirs = 0
        self._sleeper: asyncio.Task[None] | None = None
        self._pause = FIRST_PAUSE
        self._is_closed = False

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @property
    def present(self) -> int:
        """How many wait or look."""
        return len(self._waiting) + self._looking

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits and nobody looks."""
        return not self._waiting and not self._looking

    def place(self) -> Place:
        """The place of somebody who comes now."""
        return Place(next(self._numbers))

    async def serve(self, place: Place, look: Looking, seconds: float) -> Look | None:
        """Waits for something to be found.

        Args:
            place: of the one who waits.
            look: called when it is this one's turn, once or more often; is never cut short by
                the end of the wait.
            seconds: the longest that it waits for a turn.

        Returns:
            What it found; None when the time is up, or it was sent home.

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

    def stir(self) -> None:
        """There is more to look at: the first one looks, and who looks now looks again."""
        self._stirs += 1
        if self._sleeper is not None:
            self._sleeper.cancel()
            self._sleeper = None
            self._call(1)

    def send_home(self, place: Place) -> None:
        """Ends the wait of one; if it looks just now, when it has found nothing."""
        place.is_given_up = True
        if place.called is not None and not place.called.done():
            place.called.set_result(False)

    def close(self) -> None:
        """Sends everybody home."""
        self._is_closed = True
        for called in self._waiting.values():
            if not called.done():
                called.set_result(False)
        self._waiting.clear()
        self._mind()

    async def _look(self, look: Looking) -> Look:
        """Looks; the turn is over when this returns or raises."""
        try:
            found = await self._look_at_all(look)
        except BaseException as error:
            self._looking -= 1
            if isinstance(error, PASSING):
                # The others will hardly fare better: each has to wait a little longer.
                self.heard = None
                self._mind()
            else:
                self._call(1)
            raise
        self._looking -= 1
        self._pause = FIRST_PAUSE
        if found.is_final:
            self._call(2)
        elif self.heard is None or found.reply.seen >= self.heard.reply.seen:
            self.heard, self.heard_at = found, self._timing.monotonic()
        return found

    async def _look_at_all(self, look: Looking) -> Look:
        """Looks, and once more if there came to be more to look at meanwhile."""
        while True:
            stirs = self._stirs
            found = await look()
            if found.is_final or stirs == self._stirs:
                return found

    async def _turn(self, place: Place, until: float) -> bool:
        """Waits to be called.

        Returns:
            Whether it was; else the time is up, or it was sent home.

        Raises:
            CancelledError: it was cancelled; a turn that it had been given is passed on.
        """
        left = until - self._timing.monotonic()
        if left <= 0 or self._is_closed or place.is_given_up:
            self._mind()
            return False
        called = place.called = asyncio.get_running_loop().create_future()
        self._waiting[place.number] = called
        self._mind()
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
            self._mind()

    def _call(self, most: int) -> None:
        """Gives a turn to those who have waited longest."""
        while most > 0 and self._waiting and self._looking < WIDTH:
            _, called = self._waiting.popitem(0)
            if not called.done():  # else it is about to leave
                self._looking += 1
                most -= 1
                called.set_result(True)
        self._mind()

    def _mind(self) -> None:
        """Somebody sleeps for the line if, and only if, it waits and nobody looks."""
        wanted = bool(self._waiting) and not self._looking
        if wanted and self._sleeper is None:
            self._sleeper = asyncio.get_running_loop().create_task(
                self._sleep_once(), name="a line of long polls"
            )
        elif not wanted and self._sleeper is not None:
            self._sleeper.cancel()
            self._sleeper = None

    async def _sleep_once(self) -> None:
        heard = self.heard
        try:
            if heard is None:
                await self._rest()
            else:
                await self._sleep(heard)
        except HeadwayError as error:
            _log.warning("a line of long polls cannot sleep: %s", error)
            await self._rest()
        self._sleeper = None
        self._call(1)

    async def _rest(self) -> None:
        """Lets a store that could not answer have some time."""
        seconds, self._pause = self._pause, min(self._pause * 2, LONGEST_PAUSE)
        await self._timing.pause(seconds)


def _was_called(called: asyncio.Future[bool]) -> bool:
    return called.done() and not called.cancelled() and called.result()
