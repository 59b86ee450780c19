"""The ledger: the tables of one store as one step sees them, and what a step reads ahead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from headway.stores.ledger.rows import ClosedPeriod, FlowKey, JobRow
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


class ReadAhead(NamedTuple):
    """What a step will read.

    Attributes:
        keys: signal keys; the jobs of their runs are read too.
        kept: signal keys whose kept events are read.
        events: (scope, event) pairs.
        jobs: job ids; the jobs' permits are read too.
        permits: ids of jobs of which only the permits are read.
        ends: jobs that may end; their enqueue keys are read, and the gates whose permits they
            hold or where they wait.
        runs: ids of jobs whose former runs are read.
        gates: gate names; the jobs parked there or waiting with a ticket are read too.
        queues: (gate, flow) pairs; the gate's row and the flow's first job parked there are read.
        refits: gates whose unfit jobs are examined again.
        dedupe: enqueue keys, as (tenant, key).
        workers: ids of workers that lose their jobs.
        flows: flows that may be new.
        heads: numbers of the flows whose heads are read next.
        lanes: (lane, flow, limit): what `JobTable.flows_waiting` is asked next.
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
    lanes: Sequence[tuple[str, int, int]] = ()


NOTHING = ReadAhead()
"""Nothing to read."""


class Ledger(Protocol):
    """The tables of one store, within one atomic step.

    A verb reads the state at the start of the step, and its own writes. Other steps see its writes
    once the step has ended, or never.
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
        """Starts counted by rates."""
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
        """Enqueue keys."""
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

    closed_periods: dict[int, ClosedPeriod]
    """When this process last found each flow shut by a shared gate; not stored."""

    @property
    def now(self) -> int:
        """The store's time, ms: constant within the step, never less than in an earlier one."""
        ...

    def read_ahead(self, ahead: ReadAhead) -> None:
        """Read what the step will need in one batch, if that saves round trips."""
        ...

    def wake(self, lane: str | None, at: int | None = None) -> None:
        """Wake the waiters of a lane (None: of all lanes) after the step.

        Args:
            at: when there may be work for them, ms; None for now.
        """
        ...
