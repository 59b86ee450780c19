"""A pull: the claims of one worker over HTTP, and the long poll with which it waits for work.

A worker of the runtime claims, and where it finds nothing it waits until there may be something.
Over HTTP the wait is a claim itself, which the server answers when there is a job: a long poll. It
asks for one job only, as the worker's room is known when it next claims, and what it brings is
kept for that claim.

Each claim and each poll has a number of its own, which grows. The worker knows its claims by
other numbers. A beat tells the store the last number up to which every answer has come to the
worker or never will, so that no job of an answer that is still on its way is taken for unused,
and each job of an answer that was lost is.

No number is sent again after its answer was lost: the server that saw the connection end gives
back what it had claimed for it, and must not do so with what a second answer has brought.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from headway.contract.claims import Claimed, ClaimReply, ClaimRequest
from headway.runtime.timing import Timing
from headway.runtime.worker.store_time import StoreTime

POLL_S = 25.0
"""Seconds that one long poll waits; proxies on the way may cut what takes half a minute."""
ENDS_WITHIN_S = 0.5
"""Seconds that a poll gets to end once the next claim is answered: the server ends it then."""
KEPT_FOR_S = 1.0
"""Seconds that a poll goes on, and its job is kept, while its worker does not ask."""
SHORTEST_S = 0.5
"""A poll that finds nothing within less was not let wait: the next one is not made at once."""
REMEMBERED = 64
"""Claims of which it is known which numbers they had."""

Ask = Callable[[ClaimRequest, float], Awaitable[ClaimReply]]
"""Claims, and waits for so many seconds if there is nothing."""
GiveBack = Callable[[str, Sequence[Claimed]], Awaitable[None]]
"""Hands jobs of a worker back unused."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Brought:
    """What a poll has brought, until its worker asks.

    Attributes:
        number: of the poll.
        reply: its answer.
        sent: when it was sent, in seconds on this machine's clock.
        received: when the answer came.
    """

    number: int
    reply: ClaimReply
    sent: float
    received: float


@dataclass(eq=False, slots=True)
class Poll:
    """A poll that is under way.

    Attributes:
        number: of its claim.
        free: the most gated jobs that it may bring.
        task: ends when it is answered.
    """

    number: int
    free: int
    task: asyncio.Task[None]


class Pull:
    """The claims and polls of one worker; used in one event loop."""

    def __init__(self, ask: Ask, give_back: GiveBack, timing: Timing, *, seen: int) -> None:
        """Makes it.

        Args:
            ask: claims over HTTP.
            give_back: hands back what no handler can take.
            timing: for limits and pauses.
            seen: stands in each answer, so that `wait` finds this pull again.
        """
        self._ask = ask
        self._give_back = give_back
        self._timing = timing
        self._seen = seen
        self._store_time = StoreTime()
        self._request: ClaimRequest | None = None
        self._highest = 0
        self._under_way: set[int] = set()
        self._answered: deque[tuple[int, int, int]] = deque(maxlen=REMEMBERED)
        self._left = 0
        self._poll: Poll | None = None
        self._kept: list[Brought] = []
        self._empty_polls = 0
        self._server_ends_polls = True
        self._asked = 0
        self._alone: asyncio.Task[None] | None = None

    @property
    def kept(self) -> tuple[tuple[str, int], ...]:
        """Runs that no claim has brought to the worker yet."""
        return tuple((job.id, job.run) for one in self._kept for job in one.reply.jobs)

    async def claim(self, request: ClaimRequest) -> ClaimReply:
        """Claims, or gives what a poll has brought.

        Raises:
            HeadwayError: as `Store.claim`; what polls have brought stays for the next claim.
        """
        self._asked += 1
        self._request = request
        again = self._number_of(request.request)
        if self._kept and again is None:
            self._highest += 1
            return await self._handed(request, self._highest, None)
        if again is None:
            self._highest = again = max(self._highest + 1, request.request)
        self._under_way.add(again)
        try:
            sent = self._timing.monotonic()
            reply = await self._ask(replace(request, request=again), 0.0)
        finally:
            self._under_way.discard(again)
        self.heard(sent, reply.now)
        await self._end_poll()
        return await self._handed(request, again, reply)

    async def wait(self) -> None:
        """Returns when there may be something to claim.

        Raises:
            StoreError: the server cannot be asked.
            CancelledError: nobody waits any more; the poll goes on for a moment.
        """
        self._asked += 1
        request = self._request
        if self._kept or request is None:
            return
        poll = self._poll
        free = 1 if self._left > 0 else 0
        if poll is not None and poll.free != free:
            await self._close_poll()
            poll = None
        if poll is None:
            await self._hold_off()
            poll = self._poll = self._start(request, free)
        try:
            await asyncio.wait({poll.task})
        except asyncio.CancelledError:
            self._watch()
            raise
        if self._poll is poll:
            self._poll = None
        poll.task.result()

    def received(self, claim: int) -> int:
        """The last number up to which each answer has come to the worker, or never will.

        Args:
            claim: the last of the worker's own claims whose answer it holds; 0 for none.

        Returns:
            What a beat may tell the store.
        """
        if claim == 0:
            return 0
        later = [lowest for asked, _, lowest in self._answered if asked > claim]
        coming = [*self._under_way, *(one.number for one in self._kept), *later]
        return min(coming, default=self._highest + 1) - 1

    def heard(self, sent: float, now: int) -> None:
        """Takes note of the store's time in an answer to what was sent at that moment."""
        self._store_time.heard(sent, now)

    def forget(self, lost: frozenset[tuple[str, int]]) -> None:
        """Drops what was kept and is not live any more."""
        for at, one in enumerate(self._kept):
            living = [job for job in one.reply.jobs if (job.id, job.run) not in lost]
            self._kept[at] = replace(one, reply=replace(one.reply, jobs=living))

    async def leave(self, worker: str) -> None:
        """Ends the poll, and gives back what was kept."""
        if self._alone is not None:
            self._alone.cancel()
        await self._close_poll()
        await self._return_kept(worker)

    # ------------------------------------------------------------------------------ internals

    def _number_of(self, claim: int) -> int | None:
        """The number under which a claim was answered; None for one that was not."""
        for asked, number, _ in self._answered:
            if asked == claim:
                return number
        newest = self._answered[-1][0] if self._answered else 0
        return claim if claim < newest else None

    async def _handed(
        self, request: ClaimRequest, number: int, reply: ClaimReply | None
    ) -> ClaimReply:
        """The answer to a claim: what polls have brought, and what it brought itself."""
        kept, self._kept = self._kept, []
        now_s = self._timing.monotonic()
        jobs: list[Claimed] = []
        stale: list[Claimed] = []
        for one in kept:
            for job in one.reply.jobs:
                (stale if self._is_stale(job, one, now_s) else jobs).append(job)
        lowest = min((one.number for one in kept), default=number)
        self._answered.append((request.request, number, min(lowest, number)))
        if stale:
            await self._give_back(request.worker, stale)
        if reply is None:
            reply = self._late(kept[0], now_s)
        elif not kept:
            self._left = request.free - len(reply.jobs)
            return replace(reply, seen=self._seen)
        jobs += reply.jobs
        self._left = request.free - len(jobs)
        return replace(reply, jobs=jobs, again=True, seen=self._seen)

    def _late(self, one: Brought, now_s: float) -> ClaimReply:
        """An answer that was kept, as if it came now; its lease is not told longer than it is."""
        kept_ms = int(1000 * (now_s - one.received))
        whole_ms = int(1000 * (now_s - one.sent)) + 1
        now = one.reply.now + kept_ms
        left_ms = one.reply.lease_until - one.reply.now - whole_ms
        return replace(one.reply, jobs=[], now=now, lease_until=now + left_ms, next_at=now)

    def _is_stale(self, job: Claimed, one: Brought, now_s: float) -> bool:
        """Whether a job with gates would come too late to its handler."""
        if not job.gated:
            return False
        claimed_s = self._store_time.earliest(one.reply.now, one.received)
        return 1000 * (now_s - claimed_s) > job.policy.start_within_ms / 2

    def _start(self, request: ClaimRequest, free: int) -> Poll:
        self._highest = number = self._highest + 1
        self._under_way.add(number)
        one = replace(request, request=number, n=1, free=free)
        poll = Poll(number, free, asyncio.ensure_future(self._polled(one)))
        # Also where nobody waits for it any more, its failure is not one of nobody.
        poll.task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return poll

    async def _polled(self, request: ClaimRequest) -> None:
        sent = self._timing.monotonic()
        try:
            reply = await self._ask(request, POLL_S)
            received = self._timing.monotonic()
            if reply.jobs:
                one = Brought(number=request.request, reply=reply, sent=sent, received=received)
                self._kept.append(one)
        finally:
            self._under_way.discard(request.request)
        quick = received - sent < SHORTEST_S and not reply.jobs
        self._empty_polls = self._empty_polls + 1 if quick else 0

    async def _hold_off(self) -> None:
        """Lets time pass where polls are answered at once with nothing."""
        if self._empty_polls > 1:
            await self._timing.pause(min(0.05 * 2**self._empty_polls, 1.0))

    async def _end_poll(self) -> None:
        """Lets the poll end that the server was told to end by a later claim."""
        poll = self._poll
        if poll is not None and not poll.task.done() and self._server_ends_polls:
            await asyncio.wait({poll.task}, timeout=ENDS_WITHIN_S)
            self._server_ends_polls = poll.task.done()
        await self._close_poll()

    async def _close_poll(self) -> None:
        """Ends the poll; if it brings a job just then, the next beat gives that back."""
        poll, self._poll = self._poll, None
        if poll is not None and not poll.task.done():
            poll.task.cancel()
            await asyncio.wait({poll.task})

    def _watch(self) -> None:
        """Minds the poll while nobody waits for it: a job that it brings must not lie there."""
        if self._alone is not None:
            self._alone.cancel()
        self._alone = asyncio.ensure_future(self._mind(self._asked))

    async def _mind(self, asked: int) -> None:
        await self._timing.pause(KEPT_FOR_S)
        if self._asked != asked or self._request is None:
            return
        await self._close_poll()
        if self._asked == asked:
            await self._return_kept(self._request.worker)

    async def _return_kept(self, worker: str) -> None:
        kept, self._kept = self._kept, []
        jobs = [job for one in kept for job in one.reply.jobs]
        if jobs:
            await self._give_back(worker, jobs)
