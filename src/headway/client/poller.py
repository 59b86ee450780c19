"""The claims of one worker over HTTP, and the long poll with which it waits for work.

A worker of the runtime claims, and waits if it finds nothing. Over HTTP the wait is itself a claim,
to which the server replies when there is a job: a long poll. It requests only one job, because the
worker's free slots are not known before its next claim, and keeps the job for that claim.

Each claim and each poll has its own, increasing number; the worker numbers its claims differently.
A beat contains the last number up to which every reply has reached the worker or never will, so
that jobs of a lost reply are treated as unused, but not jobs of a reply that is still on its way.

A number is never sent again after its reply was lost: the server that saw the connection close
releases what it had claimed for that number, and must not release jobs of a second reply.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from headway.contract.claims import Claimed, ClaimReply, ClaimRequest
from headway.runtime.timing import Timing
from headway.runtime.worker.lease import StoreTime

POLL_S = 25.0
"""Seconds that one long poll waits; proxies may close requests that take half a minute."""
ENDS_WITHIN_S = 0.5
"""Seconds for the server to end a poll after it has replied to the next claim."""
KEPT_FOR_S = 1.0
"""Seconds that a poll continues, and its job is kept, while its worker does not claim."""
SHORTEST_S = 0.5
"""If a poll ends empty sooner than this, it did not wait, and the next one is delayed."""
REMEMBERED = 64
"""Most claims whose numbers are remembered."""

_Ask = Callable[[ClaimRequest, float], Awaitable[ClaimReply]]
"""Claims, and waits up to this many seconds if there is nothing."""
GiveBack = Callable[[str, Sequence[Claimed]], Awaitable[None]]
"""Releases unused jobs of a worker."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PollResult:
    """The result of a poll, kept until its worker claims.

    Attributes:
        sent: when it was sent, in seconds on this machine's monotonic clock.
        received: when the reply arrived, on the same clock.
    """

    number: int
    reply: ClaimReply
    sent: float
    received: float


class WorkerPoller:
    """The claims and polls of one worker; used in one event loop."""

    def __init__(self, ask: _Ask, give_back: GiveBack, timing: Timing, *, seen: int) -> None:
        self._ask = ask
        self._give_back = give_back
        self._timing = timing
        self._seen = seen
        self._store_time = StoreTime()
        self._request: ClaimRequest | None = None
        self._highest = 0
        self._under_way: set[int] = set()
        self._answered: deque[tuple[int, int, int]] = deque(maxlen=REMEMBERED)
        self._free_left = 0
        self._poll: asyncio.Task[None] | None = None
        self._kept: list[PollResult] = []
        self._empty_polls = 0
        self._server_ends_polls = True
        self._calls = 0
        self._expiry: asyncio.Task[None] | None = None

    @property
    def kept(self) -> tuple[tuple[str, int], ...]:
        """Runs from polls that no claim has delivered to the worker yet."""
        return tuple((job.id, job.run) for one in self._kept for job in one.reply.jobs)

    async def claim(self, request: ClaimRequest) -> ClaimReply:
        """Claim, or return jobs from a poll.

        Raises:
            HeadwayError: as `Store.claim`; jobs from polls are kept for the next claim.
        """
        self._calls += 1
        self._request = request
        number = self._number_of(request.request)
        if self._kept and number is None:
            self._highest += 1
            return await self._deliver(request, self._highest, None)
        if number is None:
            self._highest = number = max(self._highest + 1, request.request)
        self._under_way.add(number)
        try:
            sent = self._timing.monotonic()
            reply = await self._ask(replace(request, request=number), 0.0)
        finally:
            self._under_way.discard(number)
        self.note_time(sent, reply.now)
        await self._end_poll()
        return await self._deliver(request, number, reply)

    async def wait(self) -> None:
        """Wait until there may be something to claim.

        Raises:
            StoreError: the server cannot serve the poll now.
            CancelledError: the caller was cancelled; the poll continues for KEPT_FOR_S.
        """
        self._calls += 1
        request = self._request
        if self._kept or request is None:
            return
        poll = self._poll
        if poll is None:
            if self._empty_polls > 1:
                # They returned at once, with nothing.
                await self._timing.pause(min(0.05 * 2**self._empty_polls, 1.0))
            poll = self._poll = self._start(request)
        try:
            await asyncio.wait({poll})
        except asyncio.CancelledError:
            self._expect_claim()
            raise
        if self._poll is poll:
            self._poll = None
        poll.result()

    def received(self, claim: int) -> int:
        """Return the last number up to which each reply has reached the worker, or never will.

        Args:
            claim: the last of the worker's own claims whose reply it has; 0 if there is none.
        """
        if claim == 0:
            return 0
        later = [lowest for asked, _, lowest in self._answered if asked > claim]
        coming = [*self._under_way, *(one.number for one in self._kept), *later]
        return min(coming, default=self._highest + 1) - 1

    def note_time(self, sent: float, now: int) -> None:
        """Record the store's time from the reply to a request sent at `sent`."""
        self._store_time.observe(sent, now)

    def forget(self, lost: frozenset[tuple[str, int]]) -> None:
        """Drop kept runs that are no longer live."""
        for at, one in enumerate(self._kept):
            living = [job for job in one.reply.jobs if (job.id, job.run) not in lost]
            self._kept[at] = replace(one, reply=replace(one.reply, jobs=living))

    async def leave(self, worker: str) -> None:
        """End the poll, and release the kept jobs."""
        if self._expiry is not None:
            self._expiry.cancel()
        await self._close_poll()
        await self._return_kept(worker)

    # ------------------------------------------------------------------------------ internals

    def _number_of(self, claim: int) -> int | None:
        """Return the number under which a claim got a reply; None if it has none."""
        for asked, number, _ in self._answered:
            if asked == claim:
                return number
        newest = self._answered[-1][0] if self._answered else 0
        return claim if claim < newest else None

    async def _deliver(
        self, request: ClaimRequest, number: int, reply: ClaimReply | None
    ) -> ClaimReply:
        """Return the reply to a claim: jobs from polls, then the claim's own jobs."""
        kept, self._kept = self._kept, []
        now_s = self._timing.monotonic()
        jobs: list[Claimed] = []
        stale: list[Claimed] = []
        for one in kept:
            age_ms = 1000 * (now_s - self._store_time.earliest(one.reply.now, one.received))
            for job in one.reply.jobs:
                within_ms = job.policy.start_within_ms
                if job.gated and age_ms > within_ms / 2:
                    stale.append(job)
                elif job.gated:
                    # The worker counts from now.
                    left_ms = max(1, int(within_ms - age_ms))
                    policy = replace(job.policy, start_within_ms=left_ms)
                    jobs.append(job._replace(policy=policy))
                else:
                    jobs.append(job)
        lowest = min((one.number for one in kept), default=number)
        self._answered.append((request.request, number, min(lowest, number)))
        if stale:
            await self._give_back(request.worker, stale)
        if reply is None:
            reply = self._as_if_now(kept[0], now_s)
        elif not kept:
            self._free_left = request.free - len(reply.jobs)
            return replace(reply, seen=self._seen)
        jobs += reply.jobs
        self._free_left = request.free - len(jobs)
        return replace(reply, jobs=jobs, again=True, seen=self._seen)

    def _as_if_now(self, one: PollResult, now_s: float) -> ClaimReply:
        """Return a kept reply without its jobs, as if it came now; never overstate the lease."""
        kept_ms = int(1000 * (now_s - one.received))
        whole_ms = int(1000 * (now_s - one.sent)) + 1
        now = one.reply.now + kept_ms
        left_ms = one.reply.lease_until - one.reply.now - whole_ms
        return replace(one.reply, jobs=[], now=now, lease_until=now + left_ms, next_at=now)

    def _start(self, request: ClaimRequest) -> asyncio.Task[None]:
        self._highest = number = self._highest + 1
        self._under_way.add(number)
        # No poll outlives the claims that change how many handlers are free.
        one = replace(request, request=number, n=1, free=1 if self._free_left > 0 else 0)
        poll = asyncio.ensure_future(self._run_poll(one))
        # Retrieve the exception even if no caller awaits the task any longer.
        poll.add_done_callback(lambda task: task.cancelled() or task.exception())
        return poll

    async def _run_poll(self, request: ClaimRequest) -> None:
        sent = self._timing.monotonic()
        try:
            reply = await self._ask(request, POLL_S)
            received = self._timing.monotonic()
            if reply.jobs:
                one = PollResult(number=request.request, reply=reply, sent=sent, received=received)
                self._kept.append(one)
        finally:
            self._under_way.discard(request.request)
        quick = received - sent < SHORTEST_S and not reply.jobs
        self._empty_polls = self._empty_polls + 1 if quick else 0

    async def _end_poll(self) -> None:
        """Wait for the poll to end: the server ends it when it receives a later claim."""
        poll = self._poll
        if poll is not None and not poll.done() and self._server_ends_polls:
            await asyncio.wait({poll}, timeout=ENDS_WITHIN_S)
            self._server_ends_polls = poll.done()
        await self._close_poll()

    async def _close_poll(self) -> None:
        """End the poll; a job that arrives at the same time is released by the next beat."""
        poll, self._poll = self._poll, None
        if poll is not None and not poll.done():
            poll.cancel()
            await asyncio.wait({poll})

    def _expect_claim(self) -> None:
        """Limit how long the poll continues without a claim, so that its job is not held back."""
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = asyncio.ensure_future(self._end_unused(self._calls))

    async def _end_unused(self, asked: int) -> None:
        await self._timing.pause(KEPT_FOR_S)
        if self._calls != asked or self._request is None:
            return
        await self._close_poll()
        await self._return_kept(self._request.worker)

    async def _return_kept(self, worker: str) -> None:
        kept, self._kept = self._kept, []
        jobs = [job for one in kept for job in one.reply.jobs]
        if jobs:
            await self._give_back(worker, jobs)
