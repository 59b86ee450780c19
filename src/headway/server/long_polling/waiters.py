"""Waiters: long polls for the same lanes, served in order of arrival.

While there are no jobs, all of them share one wait on the store. When it ends, the first one
claims. A waiter that gets jobs wakes two more, so that the number of concurrent claims doubles
while there are jobs; a waiter that gets none wakes none.
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
"""Maximum number of concurrent claims."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
"""Seconds before the next claim after a failure of the store; doubled with each failure."""

_log = logging.getLogger("headway.server")


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaimAttempt:
    """The result of one claim for a poll.

    Attributes:
        is_repeat: whether the jobs were handed out before, for the same number.
    """

    reply: ClaimReply
    lanes: tuple[str, ...]
    request: int
    is_repeat: bool = False

    @property
    def is_used_up(self) -> bool:
        """Whether the claim's number was used before, so that it returned nothing.

        The reply to a claim that left flows unexamined occasionally looks the same; claiming again
        is correct then, too.
        """
        reply = self.reply
        return reply.again and not reply.after and not reply.jobs and reply.next_at == reply.now

    @property
    def is_final(self) -> bool:
        """Whether it is a reply to the poll; otherwise there are no jobs now."""
        return bool(self.reply.jobs) or self.is_used_up


_Attempt = Callable[[], Awaitable[ClaimAttempt]]
"""Claims once for a waiter, and examines all flows of its lanes."""
WaitForWork = Callable[[ClaimAttempt], Awaitable[None]]
"""Waits until there may be jobs that the given attempt did not find."""


@dataclass(eq=False, slots=True)
class Waiter:
    """A waiting long poll."""

    number: int
    turn: asyncio.Future[bool] | None = None
    is_cancelled: bool = False


class Waiters:
    """The long polls that wait for the same lanes.

    Attributes:
        last_empty: the last claim that found no jobs; None if there was none, or the store failed
            since.
        last_empty_at: when that was, on the monotonic clock.
    """

    def __init__(self, sleep: WaitForWork, timing: Timing) -> None:
        """Start without waiters.

        Args:
            sleep: must return if jobs were committed after the attempt; it may return early.
        """
        self.last_empty: ClaimAttempt | None = None
        self.last_empty_at = 0.0
        self._sleep = sleep
        self._timing = timing
        self._numbers = count()
        self._waiting: SortedDict[int, asyncio.Future[bool]] = SortedDict()
        self._claiming = 0
        self._wakes = 0
        self._sleeper: asyncio.Task[None] | None = None
        self._pause = FIRST_PAUSE_S
        self._is_closed = False

    def __len__(self) -> int:
        """Return the number of waiting polls, without those that are claiming now."""
        return len(self._waiting)

    @property
    def present(self) -> int:
        """Number of polls that are waiting or claiming."""
        return len(self._waiting) + self._claiming

    @property
    def is_idle(self) -> bool:
        """Whether there are no waiters and no claims in progress."""
        return not self._waiting and not self._claiming

    def add(self) -> Waiter:
        """Create a waiter that is served after all others."""
        return Waiter(next(self._numbers))

    async def serve(self, waiter: Waiter, attempt: _Attempt, seconds: float) -> ClaimAttempt | None:
        """Wait until a claim finds jobs.

        Args:
            attempt: called at each turn of this waiter, at least once per turn; never interrupted
                when the time is up.
            seconds: maximum time to wait for a turn.

        Returns:
            The claim; None if the time is up or the waiter was cancelled.

        Raises:
            StoreError: the store failed during the claim.
        """
        until = self._timing.monotonic() + seconds
        if self.is_idle:
            self._claiming += 1
        elif not await self._turn(waiter, until):
            return None
        while True:
            found = await self._claim(attempt)
            if found.is_final:
                return found
            if not await self._turn(waiter, until):
                return None

    def wake(self) -> None:
        """Wake the first waiter; if a waiter is claiming now, it claims again instead."""
        self._wakes += 1
        if self._sleeper is not None:
            self._sleeper.cancel()
            self._sleeper = None
            self._give_turns(1)

    def cancel(self, waiter: Waiter) -> None:
        """Cancel a wait; a waiter that is claiming now returns after the claim."""
        waiter.is_cancelled = True
        if waiter.turn is not None and not waiter.turn.done():
            waiter.turn.set_result(False)

    def cancel_all(self) -> None:
        """Cancel all waits."""
        self._is_closed = True
        for turn in self._waiting.values():
            if not turn.done():
                turn.set_result(False)
        self._waiting.clear()
        self._update_sleeper()

    async def _claim(self, attempt: _Attempt) -> ClaimAttempt:
        """Claim; the turn is over when this returns or raises."""
        try:
            found = await self._claim_all(attempt)
        except BaseException as error:
            self._claiming -= 1
            if isinstance(error, PASSING):
                # Claims of the others would probably fail as well: let them wait a little.
                self.last_empty = None
                self._update_sleeper()
            else:
                self._give_turns(1)
            raise
        self._claiming -= 1
        self._pause = FIRST_PAUSE_S
        if found.is_final:
            self._give_turns(2)
        elif self.last_empty is None or found.reply.seen >= self.last_empty.reply.seen:
            self.last_empty, self.last_empty_at = found, self._timing.monotonic()
        return found

    async def _claim_all(self, attempt: _Attempt) -> ClaimAttempt:
        """Claim, and repeat an empty claim if there was a wake in the meantime."""
        while True:
            wakes = self._wakes
            found = await attempt()
            if found.is_final or wakes == self._wakes:
                return found

    async def _turn(self, waiter: Waiter, until: float) -> bool:
        """Wait for a turn.

        Returns:
            Whether it is this waiter's turn; otherwise the time is up, or the wait was cancelled.

        Raises:
            CancelledError: the task was cancelled; its turn, if any, is passed on.
        """
        left = until - self._timing.monotonic()
        if left <= 0 or self._is_closed or waiter.is_cancelled:
            self._update_sleeper()
            return False
        turn = waiter.turn = asyncio.get_running_loop().create_future()
        self._waiting[waiter.number] = turn
        self._update_sleeper()
        try:
            async with self._timing.limit(left):
                return await turn
        except TimeoutError:
            # Use a turn that was given at the same time.
            return _has_turn(turn)
        except asyncio.CancelledError:
            if _has_turn(turn):
                self._claiming -= 1
                self._give_turns(1)
            raise
        finally:
            self._waiting.pop(waiter.number, None)
            self._update_sleeper()

    def _give_turns(self, most: int) -> None:
        """Give a turn to up to `most` waiters, those that have waited longest."""
        while most > 0 and self._waiting and self._claiming < WIDTH:
            _, turn = self._waiting.popitem(0)
            if not turn.done():  # otherwise it is about to leave
                self._claiming += 1
                most -= 1
                turn.set_result(True)
        self._update_sleeper()

    def _update_sleeper(self) -> None:
        """Wait on the store if and only if there are waiters and none is claiming."""
        wanted = bool(self._waiting) and not self._claiming
        if wanted and self._sleeper is None:
            self._sleeper = asyncio.get_running_loop().create_task(
                self._sleep_once(), name="wait of long polls"
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
            _log.warning("long polls: waiting on the store failed: %s", error)
            await self._back_off()
        self._sleeper = None
        self._give_turns(1)

    async def _back_off(self) -> None:
        """Pause after a failure of the store."""
        seconds, self._pause = self._pause, min(self._pause * 2, LONGEST_PAUSE_S)
        await self._timing.pause(seconds)


def _has_turn(turn: asyncio.Future[bool]) -> bool:
    return turn.done() and not turn.cancelled() and turn.result()
