"""The store in memory: each verb runs under one lock, and is undone if it raises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import RLock
from typing import TypeVar

from headway.contract.claims import BeatReply, BeatRequest, ClaimReply, ClaimRequest, SweepReply
from headway.contract.definitions import DefineRequest, FireReply, FireRequest
from headway.contract.extensions import ExportChunk
from headway.contract.operate import ActReply, ActRequest
from headway.contract.outcomes import SettleRequest, Verdict
from headway.contract.signals import Signal, SignalReply
from headway.contract.store import Clock, InFlight, Sent
from headway.contract.views import Query
from headway.core.job import TRAIL_KEPT_MS, NewJob
from headway.stores.ledger import verbs
from headway.stores.ledger.lane_claim import with_seen
from headway.stores.ledger.ledger import Ahead
from headway.stores.ledger.rows import ShutSpell
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
        self.shut_spells: dict[int, ShutSpell] = {}
        self.woken: dict[tuple[str | None, int | None], None] = {}

    @property
    def now(self) -> int:
        """The time of the step."""
        return self._time.now

    def read_ahead(self, ahead: Ahead) -> None:
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


class MemoryStore:
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

    def _step(self, verb: Callable[[MemoryLedger], Answer]) -> Answer:
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

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Sent]:
        return self._step(lambda ledger: verbs.enqueue(ledger, jobs))

    async def claim(self, request: ClaimRequest) -> ClaimReply:
        seen = self._wakes.count
        reply = self._step(lambda ledger: verbs.claim(ledger, request))
        return with_seen(request, reply, seen)

    async def settle(self, request: SettleRequest) -> list[Verdict]:
        return self._step(lambda ledger: verbs.settle(ledger, request))

    async def beat(self, request: BeatRequest) -> BeatReply:
        return self._step(lambda ledger: verbs.beat(ledger, request))

    async def signal(self, signal: Signal) -> SignalReply:
        return self._step(lambda ledger: verbs.signal(ledger, signal))

    async def restore(self, jobs: Sequence[InFlight]) -> list[Sent]:
        return self._step(lambda ledger: verbs.restore(ledger, jobs))

    async def act(self, request: ActRequest) -> list[ActReply]:
        return self._step(lambda ledger: verbs.act(ledger, request))

    async def define(self, request: DefineRequest) -> int:
        return self._step(lambda ledger: verbs.define(ledger, request))

    async def release_permit(self, gate: str, job: str, author: str, reason: str) -> bool:
        return self._step(lambda ledger: verbs.release_permit(ledger, gate, job, author, reason))

    async def fire(self, request: FireRequest) -> FireReply:
        return self._step(lambda ledger: verbs.fire(ledger, request))

    async def sweep(self, n: int, *, keep_trail_ms: int = TRAIL_KEPT_MS) -> SweepReply:
        return self._step(lambda ledger: verbs.sweep(ledger, n, keep_trail_ms))

    async def lead(self, role: str, holder: str, lease_ms: int) -> int | None:
        return self._step(lambda ledger: verbs.lead(ledger, role, holder, lease_ms))

    async def wait(self, lanes: Sequence[str], until_at: int | None, seen: int) -> None:
        await self._wakes.wait(lanes, until_at, seen)

    async def read(self, query: Query[Answer]) -> Answer:
        return self._step(lambda ledger: verbs.read(ledger, query))

    async def export_chunk(self, cursor: str | None) -> ExportChunk:
        return self._step(lambda ledger: verbs.export_chunk(ledger, cursor))

    async def import_chunk(self, chunk: ExportChunk) -> None:
        self._step(lambda ledger: verbs.import_chunk(ledger, chunk))

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""
