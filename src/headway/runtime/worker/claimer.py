"""The claimer: claims jobs when handlers have room for them, and sleeps when there are none."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from headway.contract.claims import ClaimReply, ClaimRequest, LaneOrder
from headway.contract.store import Store
from headway.core.errors import StoreError, StoreMisconfigured
from headway.core.job import MAX_BATCH
from headway.runtime.chores import log_dead
from headway.runtime.timing import PASSING, Timing, persist
from headway.runtime.worker.handler_slot import ReadyQueue
from headway.runtime.worker.lease import Held, Lease, StoreTime

AHEAD = 0.25
"""Seconds of work to prefetch; slow claims raise this."""

MOST_AHEAD = 0.5
"""Maximum seconds of work to prefetch."""

WINDOW = 1.0
"""Seconds over which the handlers' throughput is measured."""

CHECK_EVERY = 0.05
"""Seconds between two checks of the prefetched jobs."""

CHECKS_KEPT = 10
"""Checks after which a prefetched job is handed back, unless it is about to start."""


class PrefetchSize:
    """Sets the number of jobs to prefetch, from the handlers' throughput.

    Handlers that started together end together: fifty of 200 ms end within a millisecond or two,
    which is not a throughput of fifty thousand a second. So the lower of two rates counts: the one
    since the last claim, which follows a change at once, and the one over a window of at least a
    second. Only a window that starts while no handler runs may be shorter, because every run that
    ends in it also started in it.
    """

    def __init__(self, most: int) -> None:
        self.target = 0
        self._most = most
        self._ahead = AHEAD
        self._marks: deque[tuple[float, int]] = deque()

    def mark(self, at: float, done: int, *, took: float = 0.0, idle: bool = False) -> None:
        """Record a claim.

        Args:
            at: time of its reply, in seconds on the worker's clock.
            done: number of runs ended so far.
            took: seconds from its request to its reply.
            idle: whether no handler was running before it.
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
        """Update the target: it rises to the new value at once, and falls halfway to it."""
        if not self._marks:
            return
        (first_at, first), (last_at, last) = self._marks[0], self._marks[-1]
        if done <= last or at <= last_at:
            return
        speed = min((done - last) / (at - last_at), (done - first) / (at - first_at))
        wanted = min(int(speed * self._ahead), self._most)
        self.target = wanted if wanted > self.target else (self.target + wanted) // 2


class Surplus:
    """Decides which prefetched jobs go back to the store, so that other workers can start them.

    While there is a backlog, a job is kept for half a second at most. If there is none, other
    workers may be idle, and a job is kept for one check only.
    """

    def __init__(self, ready: int, started: int) -> None:
        self._checks = deque([(ready, started)], maxlen=CHECKS_KEPT)

    def keep(self, ready: int, started: int, *, dry: bool) -> int:
        """Record a check, and return how many of the ready jobs to keep."""
        checks = self._checks
        kept = ready
        if dry or len(checks) == CHECKS_KEPT:
            was_ready, had_started = checks[-1] if dry else checks[0]
            moved = started - had_started
            if moved < was_ready:
                # As many as started in that interval are expected to start in the next.
                kept = min(ready, moved)
        checks.append((kept, started))
        return kept


MOST_UNSETTLED = 4 * MAX_BATCH
"""Number of unsettled outcomes above which nothing more is claimed."""

SEEN_GATED = 5.0
"""Seconds after a job with gates was claimed during which more of them are expected."""

OFFER_OFTEN = 0.02
"""Seconds between two claims that reserve some handlers for gated jobs, while any are expected."""

IDLE_PAUSE = 0.02
"""Seconds between two claims of a worker that exits once it is idle."""

OFFER_EACH = 0.25
"""Seconds between two claims that reserve one handler for gated jobs, while none are expected."""


class Claimer:
    """Keeps the ready queue filled.

    Jobs with gates are claimed only for handlers that are free at the time. While other jobs are
    ready, handlers are rarely free, so some are reserved for a claim from time to time; otherwise
    jobs with gates would starve.
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
        prefetch: PrefetchSize,
        timing: Timing,
        on_idle: Callable[[], None] | None = None,
    ) -> None:
        """Create a claimer; `on_idle` is called once nothing runs here and nothing can start."""
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
        """Make `run` return after the current claim."""
        self._stopping = True
        self._queue.ask()

    async def run(self) -> None:
        """Claim until stopped.

        Raises:
            StoreError: the store cannot continue, or refuses its settings at the first claim.
        """
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
            except StoreError as error:
                if self._stopping and isinstance(error, PASSING):
                    return  # stopped while the store was unreachable
                raise
            finally:
                queue.reserved = 0
            # Only after the reservation is lifted: the handlers that the claim woke run during this
            # await, and would find themselves reserved.
            await log_dead(self._store, reply.dead)
            if reply.again:
                await timing.pause(0)
            elif self._on_idle is not None:
                if self._idle and not reply.jobs:
                    self._on_idle()
                    return
                # The end of a run does not wake the claimer.
                await timing.wait(queue.asked, IDLE_PAUSE)
            elif len(reply.jobs) < n:
                await self._sleep(reply, limited=gated >= free)

    async def give_back(self) -> None:
        """Hand back prefetched jobs that do not start soon, until cancelled."""
        queue, timing = self._queue, self._timing
        while True:
            await queue.filled.wait()
            queue.filled.clear()
            surplus = Surplus(len(queue.plain), queue.started)
            while queue.plain:
                await timing.pause(CHECK_EVERY)
                ready = len(queue.plain)
                keep = surplus.keep(ready, queue.started, dry=self._dry)
                if keep < ready:
                    self._prefetch.target = min(self._prefetch.target, keep)
                    queue.keep_ready(keep, "not started in time")

    def _room(self) -> tuple[int, int]:
        """Return how many jobs to claim, and how many of them may have gates."""
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
        # A handler that finishes from now on takes no plain job; as it rests, it wakes the claimer,
        # which then claims a job with gates for it.
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
        held, lease, timing = self._held, self._lease, self._timing
        self._request += 1
        request = ClaimRequest(
            worker=self._worker,
            request=self._request,
            lanes=self._lanes,
            order=self._order,
            n=n,
            free=free,
            lease_ms=lease.ms,
            after=self._after.after if self._after else {},
        )
        # Read before the claim: a run that ends during it may let another job start.
        self._idle = self._queue.is_idle and not self._queue.settler.pending
        # The time before the first attempt: if its reply was lost, the claim was made then.
        sent, gaps = timing.monotonic(), lease.gaps
        reply = await persist(
            timing, "claim", lambda: self._store.claim(request), until=self._gives_up
        )
        received = timing.monotonic()
        self._store_time.observe(sent, reply.now)
        lost = lease.gaps > gaps
        if lease.lapsing(received):
            # The claim has renewed the lease, but not for runs from before.
            self._queue.hand_back("its worker could not beat")
        lease.extend(sent, reply.lease_until - reply.now)
        self._after = reply
        held.take(self._request, reply.jobs)
        idle = self._queue.is_idle
        self._dry = len(reply.jobs) < n and not reply.again
        gated = self._queue.take(
            reply.jobs, self._store_time.earliest(reply.now, received) if reply.jobs else 0.0
        )
        if lost or lease.lapsing(received):
            # The process was suspended meanwhile, so another worker may have these jobs.
            self._queue.hand_back("its worker could not beat")
        if gated:
            self._gated_at = received
        if free and gated < free:
            self._offered_at = received
        if n > free:
            self._only_gated = gated == len(reply.jobs)
        self._prefetch.mark(received, self._queue.done, took=received - sent, idle=idle)
        return reply, gated

    def _gives_up(self, error: StoreError) -> bool:
        is_first = self._after is None
        return self._stopping or (is_first and isinstance(error, StoreMisconfigured))

    async def _sleep(self, reply: ClaimReply, *, limited: bool) -> None:
        """Sleep until there may be something to claim.

        Args:
            limited: whether jobs with gates may have been left because no handler was free.
        """
        queue = self._queue
        queue.low_mark = -1
        queue.hungry = limited
        # While plain jobs are ready, no handler is free for long; the next one that is free wakes
        # the claimer.
        if queue.asked.is_set() or (limited and queue.free > 0 and not queue.plain):
            return
        sleep = asyncio.ensure_future(self._store.wait(self._names, reply.next_at, reply.seen))
        queue.sleep = sleep
        try:
            await asyncio.wait((sleep,))
        finally:
            queue.sleep = None
            sleep.cancel()
        error = None if sleep.cancelled() else sleep.exception()
        if isinstance(error, PASSING):
            # The store is unreachable.
            await self._timing.wait(queue.asked, 1.0)
        elif error is not None:
            raise error


def wake_after_settling(queue: ReadyQueue) -> Callable[[], None]:
    """Return a callback that wakes the claimer when unsettled outcomes may no longer block it.

    It ignores returned permits: the store wakes the workers that can use them.
    """

    def ask() -> None:
        if queue.settler.pending > MOST_UNSETTLED // 2:
            queue.ask()

    return ask
