"""The claimer: asks for work when there is room for it, and sleeps when there is no work."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from headway.contract.claims import ClaimReply, ClaimRequest, LaneOrder
from headway.contract.store import Store
from headway.core.errors import StoreError
from headway.core.job import MAX_BATCH
from headway.runtime.chores import log_dead
from headway.runtime.timing import PASSING, Timing, persist
from headway.runtime.worker.handler_slot import ReadyQueue
from headway.runtime.worker.lease import Held, Lease, StoreTime

AHEAD = 0.25
"""Seconds of work that are held ready; more only if claims take long."""

MOST_AHEAD = 0.5
"""Never more than so many seconds of work are held ready."""

WINDOW = 1.0
"""Seconds of work by which the speed of the handlers is measured."""

LOOK_EVERY = 0.05
"""Seconds between two looks at what is held ready."""

LOOKS_HELD = 10
"""A job that was held ready for so many looks is given back, unless it is about to start."""


class Prefetch:
    """Follows the speed of the handlers.

    Handlers that began together end together: fifty of 200 ms end within a millisecond or two,
    which is not fifty thousand a second. So the speed is the lower of two: since the last claim,
    which follows a change at once, and over a window of at least a second. Only a window that
    began while no handler ran may be shorter: all that ended in it began in it.
    """

    def __init__(self, most: int) -> None:
        """Begin with nothing held ready."""
        self.target = 0
        self._most = most
        self._ahead = AHEAD
        self._marks: deque[tuple[float, int]] = deque()

    def mark(self, at: float, done: int, *, took: float = 0.0, idle: bool = False) -> None:
        """Note a claim.

        Args:
            took: seconds from its request to its reply.
            idle: no handler ran before it.
        """
        marks = self._marks
        # The handlers must not run out of jobs while the next claim is under way.
        self._ahead = min(max(AHEAD, 2 * took), MOST_AHEAD)
        if idle:
            marks.clear()
        marks.append((at, done))
        while len(marks) > 1 and marks[1][0] <= at - WINDOW:
            marks.popleft()

    def measure(self, at: float, done: int) -> None:
        """Set the target by the speed of the handlers; it rises at once and falls by halves."""
        if not self._marks:
            return
        (first_at, first), (last_at, last) = self._marks[0], self._marks[-1]
        if done <= last or at <= last_at:
            return
        speed = min((done - last) / (at - last_at), (done - first) / (at - first_at))
        wanted = min(int(speed * self._ahead), self._most)
        self.target = wanted if wanted > self.target else (self.target + wanted) // 2


class Surplus:
    """Decides which jobs that are held ready go back to the store, where others may start them.

    While there is a backlog, a job is held for half a second at most; when there is none, and
    other workers may be idle, for one look.
    """

    def __init__(self, ready: int, started: int) -> None:
        """Begin with the first look."""
        self._looks = deque([(ready, started)], maxlen=LOOKS_HELD)

    def keep(self, ready: int, started: int, *, dry: bool) -> int:
        """Take the next look, and return how many of the ready jobs to keep."""
        looks = self._looks
        kept = ready
        if dry or len(looks) == LOOKS_HELD:
            was_ready, had_started = looks[-1] if dry else looks[0]
            moved = started - had_started
            if moved < was_ready:
                # As many as started in that time are about to start.
                kept = min(ready, moved)
        looks.append((kept, started))
        return kept


MOST_UNSETTLED = 4 * MAX_BATCH
"""While so many outcomes wait for the store, no more work is asked for."""

SEEN_GATED = 5.0
"""Seconds for which a job with gates is remembered."""

OFFER_OFTEN = 0.02
"""Seconds between offers of some handlers to jobs with gates, while such are remembered."""

IDLE_LOOK = 0.02
"""Seconds between two claims of a worker that ends once it is idle."""

OFFER_EACH = 0.25
"""Seconds between offers of one handler to jobs with gates, if none was seen of late."""


class Claimer:
    """Keeps the queue supplied.

    Jobs with gates are claimed only for handlers that are free at that moment. While other jobs
    are ready, handlers are seldom free: so now and then some are held back for a claim, or jobs
    with gates would never get one.
    """

    def __init__(  # noqa: PLR0913  (the parts that it joins)
        self,
        store: Store,
        worker: str,
        *,
        lanes: tuple[tuple[str, int], ...],
        order: LaneOrder,
        queue: ReadyQueue,
        held: Held,
        lease: Lease,
        prefetch: Prefetch,
        timing: Timing,
        on_idle: Callable[[], None] | None = None,
    ) -> None:
        """Make it; `on_idle` is called when nothing runs here and nothing can start now."""
        self._on_idle = on_idle
        self._store = store
        self._worker = worker
        self._lanes = lanes
        self._names = tuple(name for name, _ in lanes)
        self._order: LaneOrder = order
        self._queue = queue
        self._held = held
        self._lease = lease
        self._prefetch = prefetch
        self._timing = timing
        self._store_time = StoreTime()
        self._after: ClaimReply | None = None
        self._request = 0
        self._gated_at = float("-inf")
        self._offered_at = float("-inf")
        self._only_gated = False
        self._dry = True
        self._idle = False
        self._stopping = False

    def stop(self) -> None:
        """Let `run` end after the claim that is under way."""
        self._stopping = True
        self._queue.asked.set()

    async def run(self) -> None:
        """Claim until stopped."""
        queue, timing = self._queue, self._timing
        while not self._stopping:
            n, free = self._room()
            if n <= 0:
                await queue.asked.wait()
                queue.asked.clear()
                continue
            queue.asked.clear()
            queue.reserved = free
            try:
                reply, gated = await self._claim(n, free)
            except PASSING:
                return  # asked to stop while the store was away
            finally:
                queue.reserved = 0
            # Not before: the handlers that it has woken would find themselves reserved, and rest.
            await log_dead(self._store, reply.dead)
            if reply.again:
                await timing.pause(0)
            elif self._on_idle is not None:
                if self._idle and not reply.jobs:
                    self._on_idle()
                    return
                # The end of a run wakes no claimer.
                await timing.wait(queue.asked, IDLE_LOOK)
            elif len(reply.jobs) < n:
                await self._sleep(reply, limited=gated >= free)

    async def give_back(self) -> None:
        """Hand back jobs that are held ready and not started soon, until it is cancelled."""
        queue, timing = self._queue, self._timing
        while True:
            await queue.filled.wait()
            queue.filled.clear()
            surplus = Surplus(len(queue.plain), queue.started)
            while queue.plain:
                await timing.pause(LOOK_EVERY)
                ready = len(queue.plain)
                keep = surplus.keep(ready, queue.started, dry=self._dry)
                if keep < ready:
                    self._prefetch.target = min(self._prefetch.target, keep)
                    queue.keep_ready(keep, "not started in time")

    def _room(self) -> tuple[int, int]:
        """How many jobs to ask for, and how many of them may have gates."""
        queue, prefetch = self._queue, self._prefetch
        now = self._timing.monotonic()
        prefetch.measure(now, queue.done)
        ready, idle = len(queue.plain), queue.free
        # Scarce jobs should go to a worker with free handlers.
        target = 0 if self._dry else prefetch.target
        queue.hungry = True
        queue.low_mark = target // 2
        if queue.settler.pending > MOST_UNSETTLED:
            return 0, 0
        if not ready and not idle and self._only_gated:
            return 0, 0
        if not ready:
            return min(idle + target, MAX_BATCH), min(idle, MAX_BATCH)
        keep = self._keep_free(now)
        offer = min(idle, keep)
        # A handler that finishes from now on rests, and so brings the claimer back with an offer.
        queue.reserved = keep if not offer else 0
        room = idle + target - ready
        if ready <= queue.low_mark and room > 0:
            return min(max(room, offer), MAX_BATCH), offer
        return offer, offer

    def _keep_free(self, now: float) -> int:
        waited = now - self._offered_at
        if now - self._gated_at < SEEN_GATED and waited >= OFFER_OFTEN:
            return max(1, self._queue.size // 4)
        return int(waited >= OFFER_EACH)

    async def _claim(self, n: int, free: int) -> tuple[ClaimReply, int]:
        held, timing = self._held, self._timing
        self._request += 1
        request = ClaimRequest(
            worker=self._worker,
            request=self._request,
            lanes=self._lanes,
            order=self._order,
            n=n,
            free=free,
            lease_ms=self._lease.ms,
            after=self._after.after if self._after else {},
        )
        # Before the claim: what ends during it may be what lets another job start.
        self._idle = self._queue.quiet and not self._queue.settler.pending
        # If the reply was lost, the first sending counts: the claim may have been done then.
        sent = timing.monotonic()
        reply = await persist(
            timing, "claim", lambda: self._store.claim(request), until=lambda: self._stopping
        )
        received = timing.monotonic()
        self._store_time.observe(sent, reply.now)
        self._lease.extend(sent, reply.lease_until - reply.now)
        self._after = reply
        held.take(self._request, reply.jobs)
        idle = self._queue.quiet
        self._dry = len(reply.jobs) < n and not reply.again
        gated = self._queue.take(
            reply.jobs, self._store_time.earliest(reply.now, received) if reply.jobs else 0.0
        )
        if gated:
            self._gated_at = received
        if free and gated < free:
            self._offered_at = received
        if n > free:
            self._only_gated = gated == len(reply.jobs)
        self._prefetch.mark(received, self._queue.done, took=received - sent, idle=idle)
        return reply, gated

    async def _sleep(self, reply: ClaimReply, *, limited: bool) -> None:
        """Sleep until there may be something to claim.

        Args:
            limited: jobs with gates may have been left for want of a handler.
        """
        queue = self._queue
        queue.low_mark = -1
        queue.hungry = limited
        # While others are ready, handlers are not idle for long: the first that is brings it back.
        if queue.asked.is_set() or (limited and queue.free > 0 and not queue.plain):
            return
        waiting = asyncio.ensure_future(self._store.wait(self._names, reply.next_at, reply.seen))
        asked = asyncio.ensure_future(queue.asked.wait())
        try:
            await asyncio.wait((waiting, asked), return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
            waiting.cancel()
            ended = await asyncio.gather(waiting, asked, return_exceptions=True)
        await self._after_wait(ended[0])

    async def _after_wait(self, ended: object) -> None:
        """Handle the end of a wait: a store that cannot wait now must not be asked at once."""
        if isinstance(ended, StoreError) and isinstance(ended, PASSING):
            await self._timing.wait(self._queue.asked, 1.0)
        elif isinstance(ended, Exception):
            raise ended


def settled(queue: ReadyQueue) -> Callable[[], None]:
    """What to do after each settlement: there may be room for outcomes again.

    Whether permits that it gave back can start something is known to the store, which wakes those
    who wait for them.
    """

    def ask() -> None:
        if queue.settler.pending > MOST_UNSETTLED // 2:
            queue.asked.set()

    return ask
