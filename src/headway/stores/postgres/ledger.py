"""The tables of a PostgreSQL store, as one step sees them."""

from __future__ import annotations

from headway.stores.ledger.ahead import Ahead
from headway.stores.ledger.rows import ShutSpell
from headway.stores.ledger.tables.gates import GateTable, PermitTable, StartTable
from headway.stores.ledger.tables.jobs import JobTable
from headway.stores.ledger.tables.lanes import CountTable, LaneTable
from headway.stores.ledger.tables.records import (
    EntryTable,
    FactTable,
    KeyTable,
    SignalTable,
    TrailTable,
    WorkerTable,
)
from headway.stores.ledger.tables.tokens import TokenTable
from headway.stores.postgres.mode import Mode
from headway.stores.postgres.reading import reads_of
from headway.stores.postgres.session import Session
from headway.stores.postgres.tables.counts import PostgresCounts
from headway.stores.postgres.tables.entries import PostgresEntries
from headway.stores.postgres.tables.facts import PostgresFacts
from headway.stores.postgres.tables.gates import PostgresGates
from headway.stores.postgres.tables.jobs import PostgresJobs
from headway.stores.postgres.tables.keys import PostgresKeys
from headway.stores.postgres.tables.lanes import PostgresLanes
from headway.stores.postgres.tables.permits import PostgresPermits
from headway.stores.postgres.tables.signals import PostgresSignals
from headway.stores.postgres.tables.starts import PostgresStarts
from headway.stores.postgres.tables.tokens import PostgresTokens
from headway.stores.postgres.tables.trail import PostgresTrail
from headway.stores.postgres.tables.workers import PostgresWorkers


class PostgresLedger:
    """See `Ledger`.

    Args:
        session: through which all tables ask.
    """

    def __init__(self, session: Session, shut_spells: dict[int, ShutSpell]) -> None:
        self.session = session
        self.jobs: JobTable = PostgresJobs(session)
        self.gates: GateTable = PostgresGates(session)
        self.permits: PermitTable = PostgresPermits(session)
        self.starts: StartTable = PostgresStarts(session)
        self.lanes: LaneTable = PostgresLanes(session)
        self.counts: CountTable = PostgresCounts(session)
        self.keys: KeyTable = PostgresKeys(session)
        self.signals: SignalTable = PostgresSignals(session)
        self.workers: WorkerTable = PostgresWorkers(session)
        self.entries: EntryTable = PostgresEntries(session)
        self.tokens: TokenTable = PostgresTokens(session)
        self.trail: TrailTable = PostgresTrail(session)
        self.facts: FactTable = PostgresFacts(session, self.trail)
        self.shut_spells = shut_spells

    @property
    def now(self) -> int:
        """The store's time of this step, ms."""
        return self.session.now

    def read_ahead(self, ahead: Ahead) -> None:
        """Read what the step will look at in one trip."""
        session = self.session
        if ahead.flows:
            session.flows.know(ahead.flows)
        if session.mode is Mode.SHARED and ahead.gates:
            session.need_turn()
        if session.mode not in {Mode.BLIND, Mode.PEEK}:
            session.read_all(reads_of(session, ahead))

    def wake(self, lane: str | None, at: int | None = None) -> None:
        """After the step, wakes those who wait for this lane (None: for any)."""
        self.session.wakes.append((lane, at))
