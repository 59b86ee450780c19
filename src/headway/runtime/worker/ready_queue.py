"""The ready queue: the jobs that are ready, and the handlers that take them, one after another.

A handler slot is a task that lives as long as the worker; making a task for each job would cost
more than everything else together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from headway.contract.claims import Claimed
from headway.contract.outcomes import Released
from headway.runtime.timing import Timing
from headway.runtime.worker.lease import Held, Run
from headway.runtime.worker.settler import Settler


class ReadyQueue:
    """The jobs that are ready, and how many handlers are free.

    Attributes:
        busy: handlers that run a job.
        reserved: handlers that must not take a job without gates, because a claim counts on them.
        gated: jobs with gates, each with the latest moment at which it may still start.
        plain: jobs without.
        low_mark: ask for more when so many plain jobs are left; -1 for never.
        hungry: ask for more when a handler finds no job.
        done: handlers that have ended so far.
        put: jobs without gates that were put here so far, but for those taken out again.
        filled: set when such jobs are put here; the waiter clears it.
        asked: the claimer must look again.
        idle: a handler has found nothing to do; the waiter clears it.
    """

    def __init__(self, size: int, settler: Settler, held: Held, timing: Timing) -> None:
        self.size = size
        self.busy = 0
        self.reserved = 0
        self.gated: deque[tuple[Claimed, float]] = deque()
        self.plain: deque[Claimed] = deque()
        self.low_mark = -1
        self.hungry = False
        self.done = 0
        self.put = 0
        self.filled = asyncio.Event()
        self.asked = asyncio.Event()
        self.idle = asyncio.Event()
        self.settler = settler
        self.held = held
        self.timing = timing
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def free(self) -> int:
        """Handlers that could start a job with gates at once."""
        return self.size - self.busy - len(self.gated)

    def take(self, jobs: Iterable[Claimed], claimed_at: float) -> int:
        """Add the jobs of a claim.

        Args:
            jobs: in the order to be started.
            claimed_at: the earliest that the claim can have been, in seconds.

        Returns:
            How many of them have gates.
        """
        gated, ready = 0, len(self.plain)
        for claimed in jobs:
            if claimed.gated:
                gated += 1
                within = claimed.policy.start_within_ms / 1000
                self.gated.append((claimed, claimed_at + within))
            else:
                self.plain.append(claimed)
        if len(self.plain) > ready:
            self.put += len(self.plain) - ready
            self.filled.set()
        self.wake()
        return gated

    @property
    def started(self) -> int:
        """Jobs without gates that a handler has taken so far."""
        return self.put - len(self.plain)

    def next(self) -> Claimed | None:
        """The job that a free handler must start now; None if it has to rest."""
        gated = self.gated
        while gated:
            claimed, start_by = gated.popleft()
            if self.timing.monotonic() <= start_by:
                return claimed
            self.settler.put(Released(claimed.id, claimed.run, reason="not started in time"))
        plain = self.plain
        if not plain or self.busy + self.reserved >= self.size:
            return None
        if len(plain) - 1 == self.low_mark:
            self.asked.set()
        return plain.popleft()

    def wake(self) -> None:
        """Wake as many waiting handlers as there are jobs for."""
        resting = self._waiting
        for _ in range(min(len(resting), len(self.gated) + len(self.plain))):
            future = resting.pop()
            if not future.done():
                future.set_result(None)

    async def wait_for_job(self) -> None:
        """Wait until there may be a job for one more handler."""
        if self.hungry:
            self.asked.set()
        self.idle.set()
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    def hand_back(self, reason: str) -> None:
        """Hand back all jobs that no handler has taken."""
        for claimed, _ in self.gated:
            self.settler.put(Released(claimed.id, claimed.run, reason=reason))
        self.gated.clear()
        self.keep_ready(0, reason)

    def keep_ready(self, n: int, reason: str) -> None:
        """Hand back the jobs without gates that would start last, but for the first `n`."""
        plain = self.plain
        surplus = [plain.pop() for _ in range(len(plain) - n)]
        self.put -= len(surplus)
        for claimed in reversed(surplus):
            self.settler.put(Released(claimed.id, claimed.run, reason=reason))

    def withdraw(self, runs: frozenset[Run]) -> list[Claimed]:
        """Take these out of what is ready.

        Returns:
            Those that no handler had taken.
        """
        found = [one for one, _ in self.gated if (one.id, one.run) in runs]
        found += [one for one in self.plain if (one.id, one.run) in runs]
        if found:
            # In place: the slots hold on to these very queues.
            gated = [pair for pair in self.gated if (pair[0].id, pair[0].run) not in runs]
            plain = [one for one in self.plain if (one.id, one.run) not in runs]
            self.gated.clear()
            self.gated.extend(gated)
            self.put -= len(self.plain) - len(plain)
            self.plain.clear()
            self.plain.extend(plain)
        return found
