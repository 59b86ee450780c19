"""The ledger of a SQLite store: its tables within one step."""

from __future__ import annotations

from headway.stores.ledger.ledger import ReadAhead
from headway.stores.ledger.rows import ClosedPeriod
from headway.stores.sql.records import SqlEntries, SqlFacts, SqlTokens
from headway.stores.sql.statement import HIGH_WATER
from headway.stores.sqlite.caches import SUSPECT
from headway.stores.sqlite.session import Session
from headway.stores.sqlite.tables.gates import SqliteGates, SqlitePermits, SqliteStarts
from headway.stores.sqlite.tables.jobs import SqliteJobs
from headway.stores.sqlite.tables.lanes import SqliteCounts, SqliteLanes
from headway.stores.sqlite.tables.records import (
    SqliteKeys,
    SqliteSignals,
    SqliteTrail,
    SqliteWorkers,
)

_END_LEASES = (
    "UPDATE worker INDEXED BY worker_lease SET lease_until = min(lease_until, ?) WHERE lapsed = 0"
)


class SqliteLedger:
    """The tables of one connection."""

    suspect_key = SUSPECT

    def __init__(self, session: Session) -> None:
        self.session = session
        self.jobs = SqliteJobs(session)
        self.gates = SqliteGates(session)
        self.permits = SqlitePermits(session)
        self.starts = SqliteStarts(session)
        self.lanes = SqliteLanes(session)
        self.counts = SqliteCounts(session)
        self.keys = SqliteKeys(session)
        self.signals = SqliteSignals(session)
        self.workers = SqliteWorkers(session)
        self.entries = SqlEntries(session)
        self.tokens = SqlTokens(session)
        self.trail = SqliteTrail(session)
        self.facts = SqlFacts(session, self.trail)
        self.closed_periods: dict[int, ClosedPeriod] = {}

    @property
    def now(self) -> int:
        """The store's time of this step, ms."""
        return self.session.now

    def read_ahead(self, ahead: ReadAhead) -> None:
        """Find the gates without parked jobs: most have none, and one query is faster than many.

        Nothing else is read, because other statements cost no more than another row.
        """
        if ahead.gates or ahead.queues:
            self.jobs.find_parked([*ahead.gates, *(gate for gate, _ in ahead.queues)])

    def wake(self, lane: str | None, at: int | None = None) -> None:
        """Wake the waiters of a lane (None: of all lanes) after the step."""
        self.session.wakes.append((lane, at))

    def end_leases(self) -> None:
        """End all leases now."""
        self.session.db.execute(_END_LEASES, (self.now,))

    def set_time_back(self) -> None:
        """Lower the high-water mark to the step's time."""
        self.session.numbers.put(HIGH_WATER, self.now)
