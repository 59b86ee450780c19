"""A ledger: the tables of one store as one step sees them."""

from __future__ import annotations

from typing import Protocol

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


class Ledger(Protocol):
    """The tables of one store, within one atomic step.

    A verb reads the state at the step's begin and its own writes. Others see its writes when the
    step ends, or never.
    """

    @property
    def jobs(self) -> JobTable:
        """Jobs."""
        ...

    @property
    def gates(self) -> GateTable:
        """Gates."""
        ...

    @property
    def permits(self) -> PermitTable:
        """Permits."""
        ...

    @property
    def starts(self) -> StartTable:
        """Starts that rates count."""
        ...

    @property
    def lanes(self) -> LaneTable:
        """Lanes."""
        ...

    @property
    def counts(self) -> CountTable:
        """Counts."""
        ...

    @property
    def keys(self) -> KeyTable:
        """Keys of enqueues."""
        ...

    @property
    def signals(self) -> SignalTable:
        """Signals."""
        ...

    @property
    def workers(self) -> WorkerTable:
        """Workers."""
        ...

    @property
    def entries(self) -> EntryTable:
        """The timetable."""
        ...

    @property
    def tokens(self) -> TokenTable:
        """Tokens."""
        ...

    @property
    def trail(self) -> TrailTable:
        """The trail."""
        ...

    @property
    def facts(self) -> FactTable:
        """The store's own facts."""
        ...

    shut_spells: dict[int, ShutSpell]
    """When this process last found each flow shut by a shared gate; not stored."""

    @property
    def now(self) -> int:
        """The store's time of this step, ms: constant within it, never less than in an earlier."""
        ...

    def read_ahead(self, ahead: Ahead) -> None:
        """Read what the step will need at once, if that saves round trips."""
        ...

    def wake(self, lane: str | None, at: int | None = None) -> None:
        """Wake the waiters of a lane (None: of all lanes) after the step.

        Args:
            lane: where something may be claimable.
            at: from when; None for now.
        """
        ...
