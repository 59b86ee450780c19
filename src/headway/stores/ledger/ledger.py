"""A ledger: the tables of one store as one step sees them, and what a step reads ahead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from headway.stores.ledger.rows import FlowKey, JobRow, ShutSpell
from headway.stores.ledger.tables import (
    CountTable,
    EntryTable,
    FactTable,
    GateTable,
    JobTable,
    KeyTable,
    LaneTable,
    PermitTable,
    SignalTable,
    StartTable,
    TokenTable,
    TrailTable,
    WorkerTable,
)


class Ahead(NamedTuple):
    """What a step will read.

    Attributes:
        keys: signal keys of runs, and the jobs of these runs.
        kept: signal keys for which events may be kept.
        events: by (scope, event).
        jobs: ids, with the permits that they hold.
        permits: ids of jobs whose permits alone are read.
        ends: jobs that may end: their keys, and the gates at which they hold or wait.
        runs: ids of jobs whose former runs are read.
        gates: names, with the jobs that are parked there or wait with a ticket.
        queues: gates and flows: the rows of the gates, and the first job of each that is parked.
        refits: gates whose unfit jobs are examined again.
        dedupe: enqueue keys, by (tenant, key).
        workers: ids of workers whose jobs are taken.
        flows: flows that may be new.
        heads: numbers of the flows whose heads are read next.
    """

    keys: Sequence[str] = ()
    kept: Sequence[str] = ()
    events: Sequence[tuple[str, str]] = ()
    jobs: Sequence[str] = ()
    permits: Sequence[str] = ()
    ends: Sequence[JobRow] = ()
    runs: Sequence[str] = ()
    gates: Sequence[str] = ()
    queues: Sequence[tuple[str, int]] = ()
    refits: Sequence[str] = ()
    dedupe: Sequence[tuple[str, str]] = ()
    workers: Sequence[str] = ()
    flows: Sequence[FlowKey] = ()
    heads: Sequence[int] = ()


NOTHING = Ahead()
"""Nothing to read."""


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
            at: from when; None for now.
        """
        ...
