"""The ledger of a SQLite store: its tables within one step."""

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
from headway.stores.sqlite.session import Session
from headway.stores.sqlite.tables.counts import SqliteCounts
from headway.stores.sqlite.tables.entries import SqliteEntries
from headway.stores.sqlite.tables.facts import SqliteFacts
from headway.stores.sqlite.tables.gates import SqliteGates
from headway.stores.sqlite.tables.jobs import SqliteJobs
from headway.stores.sqlite.tables.keys import SqliteKeys
from headway.stores.sqlite.tables.lanes import SqliteLanes
from headway.stores.sqlite.tables.permits import SqlitePermits
from headway.stores.sqlite.tables.signals import SqliteSignals
from headway.stores.sqlite.tables.starts import SqliteStarts
from headway.stores.sqlite.tables.tokens import SqliteTokens
from headway.stores.sqlite.tables.trail import SqliteTrail
from headway.stores.sqlite.tables.workers import SqliteWorkers


class SqliteLedger:
    """The tables of one connection."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.jobs: JobTable = SqliteJobs(session)
        self.gates: GateTable = SqliteGates(session)
        self.permits: PermitTable = SqlitePermits(session)
        self.starts: StartTable = SqliteStarts(session)
        self.lanes: LaneTable = SqliteLanes(session)
        self.counts: CountTable = SqliteCounts(session)
        self.keys: KeyTable = SqliteKeys(session)
        self.signals: SignalTable = SqliteSignals(session)
        self.workers: WorkerTable = SqliteWorkers(session)
        self.entries: EntryTable = SqliteEntries(session)
        self.tokens: TokenTable = SqliteTokens(session)
        self.trail: TrailTable = SqliteTrail(session)
        self.facts: FactTable = SqliteFacts(session, self.trail)
        self.shut_spells: dict[int, ShutSpell] = {}

    @property
    def now(self) -> int:
        """The store's time of this step, ms."""
        return self.session.now

    def read_ahead(self, ahead: Ahead) -> None:
        """Do nothing: one more statement costs as much as one more row."""

    def wake(self, lane: str | None, at: int | None = None) -> None:
        """Wake the waiters of a lane (None: of all lanes) after the step."""
        self.session.wakes.append((lane, at))
