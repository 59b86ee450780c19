"""The store in memory: each verb runs under one lock, and is undone if it raises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import RLock
from typing import TypeVar

from headway.contract.claims import ClaimReply, ClaimRequest
from headway.contract.store import Clock
from headway.stores.ledger import verbs
from headway.stores.ledger.lane_claim import with_seen
from headway.stores.ledger.ledger import ReadAhead
from headway.stores.ledger.rows import ClosedPeriod
from headway.stores.ledger.store import LedgerStore
from headway.stores.ledger.wakes import Wakes
from headway.stores.memory.gates import MemoryGates, MemoryPermits, MemoryStarts
from headway.stores.memory.jobs import MemoryJobs
from headway.stores.memory.journal import Journal
from headway.stores.memory.records import (
    MemoryCounts,
    MemoryEntries,
    MemoryFacts,
    MemoryKeys,
    MemoryLanes,
    MemorySignals,
    MemoryTokens,
    MemoryTrail,
    MemoryWorkers,
)
from headway.stores.memory.timing import StepTime, machine_clock


class MemoryLedger:
    """See `Ledger`."""

    def __init__(self, clock: Clock, identity: str) -> None:
        self._time = time = StepTime(clock)
        self._journal = journal = Journal()
        self.keys = MemoryKeys(journal)
        self.signals = MemorySignals(time, journal)
        self.jobs = MemoryJobs(time, journal, self.keys, self.signals)
        self.gates = MemoryGates(time, journal)
        self.permits = MemoryPermits(journal)
        self.starts = MemoryStarts(time, journal)
        self.lanes = MemoryLanes(journal)
        self.counts = MemoryCounts(journal)
        self.workers = MemoryWorkers(time, journal)
        self.entries = MemoryEntries(journal)
        self.tokens = MemoryTokens(journal)
        self.trail = MemoryTrail(journal)
        self.facts = MemoryFacts(time, journal, identity)
        self.closed_periods: dict[int, ClosedPeriod] = {}
        self.woken: dict[tuple[str | None, int | None], None] = {}

    @property
    def now(self) -> int:
        """The time of the step."""
        return self._time.now

    def read_ahead(self, ahead: ReadAhead) -> None:
        """Do nothing: all tables are in memory."""

    def wake(self, lane: str | None, at: int | None = None) -> None:
        """Record which lane to wake after the step."""
        self.woken[lane, at if at is not None and at > self.now else None] = None

    def begin(self) -> None:
        """Start a step."""
        self._time.begin()
        self.woken.clear()

    def commit(self) -> None:
        """Commit the step."""
        self._journal.keep()

    def roll_back(self) -> None:
        """Undo the step."""
        self._journal.roll_back()
        self.woken.clear()


Answer = TypeVar("Answer")


class MemoryStore(LedgerStore[MemoryLedger]):
    """All state in this process, lost when it ends. See `Store` for the promises.

    Args:
        clock: returns ms since 1970 (default: the machine's clock).
    """

    runs_inline = True

    def __init__(self, clock: Clock | None = None, *, identity: str = "memory") -> None:
        self._clock = clock or machine_clock
        self._ledger = MemoryLedger(self._clock, identity)
        self._wakes = Wakes(self._clock)
        self._lock = RLock()

    async def _decide(
        self, verb: Callable[[MemoryLedger], Answer], *, adds: bool = False
    ) -> Answer:
        del adds  # there is no device that fills up
        with self._lock:
            ledger = self._ledger
            ledger.begin()
            try:
                answer = verb(ledger)
            except BaseException:
                ledger.roll_back()
                raise
            ledger.commit()
            woken = list(ledger.woken)
        if woken:
            self._wakes.wake(woken)
        return answer

    _read = _decide

    async def claim(self, request: ClaimRequest) -> ClaimReply:
        seen = self._wakes.count
        reply = await self._decide(lambda ledger: verbs.claim(ledger, request))
        return with_seen(request, reply, seen)

    async def wait(self, lanes: Sequence[str], until_at: int | None, seen: int) -> None:
        await self._wakes.wait(lanes, until_at, seen)

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""
