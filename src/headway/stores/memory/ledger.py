"""The tables in memory, and the step over them."""

from __future__ import annotations

from headway.contract.clock import Clock
from headway.stores.ledger.ahead import Ahead
from headway.stores.ledger.rows import ShutSpell
from headway.stores.memory.gates import MemoryGates, MemoryPermits, MemoryStarts
from headway.stores.memory.jobs import MemoryJobs
from headway.stores.memory.journal import Journal
from headway.stores.memory.lanes import MemoryCounts, MemoryLanes
from headway.stores.memory.records import (
    MemoryEntries,
    MemoryFacts,
    MemoryKeys,
    MemorySignals,
    MemoryTrail,
    MemoryWorkers,
)
from headway.stores.memory.timing import StepTime
from headway.stores.memory.tokens import MemoryTokens


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
        """Begin a step."""
        self._time.begin()
        self.woken.clear()

    def commit(self) -> None:
        """Commit the step."""
        self._journal.keep()

    def roll_back(self) -> None:
        """Undo the step."""
        self._journal.roll_back()
        self.woken.clear()
