"""The ledger's rows. Verbs change them in place and save them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import msgspec
from msgspec.structs import replace

from headway.contract.definitions import EntrySpec, LaneSpec
from headway.core.cascade import Cascade
from headway.core.flow import Order
from headway.core.gates.spec import GateUse
from headway.core.state import State


class FlowKey(NamedTuple):
    """A flow: the jobs of one lane, tenant and kind that need the same shared gates."""

    lane: str
    tenant: str
    kind: str
    shared: tuple[GateUse, ...]


class JobRow(msgspec.Struct, kw_only=True, gc=False):
    """A job; a msgspec struct, because rows are created and copied for each job of a batch.

    A row cannot be part of a reference cycle, so the garbage collector need not visit it.

    Attributes:
        seq: the order of arrival; assigned by the ledger at insert, 0 before.
        body: hash of what a repeated enqueue must agree on, set when an edit changed the fields;
            empty before.
        flow: number of its flow, which has lane, tenant, kind and shared gates.
        keyed: its keyed gates as enqueued, with `{candidate}` not filled in.
        care: ending it takes more than writing its state and returning its permits: it has a key,
            a follow-up, a cascade, an entry, signal keys, a requested cancel or its own retention.
        ticket: the keyed gate from which it was fed, while it waits.
        ticket_amount: how many permits it needs there; of an unfit job, at the gate where it is
            parked (0 if an earlier version parked it).
        parked_at: the keyed gate where it is parked.
        unfit: it needs more than that gate's capacity.
        blocked_ms: time spent parked since it was due.
        worker: the holder of the run; while awaiting, only until its handler has returned.
        last_worker: the holder of the run that ended or whose handler has returned.
        request: number of the worker's claim that took it.
        members: gates taken by this run, each with the pool's member ("" for other kinds).
        gated: this run took a permit or counts as a start of a rate.
        candidate: the candidate of a cascade whose turn this run is.
        cancel_requested: a cancel waits for the end of the run.
        reconciles: how many reconcile jobs this run has had; negative after its deadline was
            extended, because the provider is asked again at the new deadline.
        purge_at: when it may be removed; set when it ends.
        outcome: how the last run ended; empty while it is live.
        (the others: as in contract.views.JobView)
    """

    id: str
    lane: str
    tenant: str
    kind: str
    subject: str | None
    stage: str
    priority: int
    due_at: int
    args: bytes
    flow: int
    policy: int
    state: State
    created_at: int
    seq: int = 0
    body: bytes = b""
    expires_at: int | None = None
    key: str | None = None
    keyed: tuple[GateUse, ...] = ()
    care: bool = False
    run: int = 0
    attempt: int = 0
    life: int = 1
    ticket: str | None = None
    ticket_amount: int = 0
    parked_at: str | None = None
    unfit: bool = False
    parked_since: int = 0
    blocked_ms: int = 0
    worker: str | None = None
    last_worker: str = ""
    request: int = 0
    claimed_at: int | None = None
    handed_at: int | None = None
    deadline_at: int | None = None
    in_doubt: bool = False
    members: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    gated: bool = False
    cascade: Cascade | None = None
    candidate: str = ""
    cancel_requested: bool = False
    reconciles: int = 0
    finished_at: int | None = None
    purge_at: int | None = None
    outcome: str = ""
    reason: str = ""
    error: str = ""
    result: bytes | None = None
    progress: bytes | None = None
    entry: str | None = None
    fired_at: int | None = None

    @property
    def order(self) -> Order:
        """Its place in its flow."""
        return Order(self.priority, self.due_at, self.seq)

    @property
    def accepted(self) -> bool:
        """Whether a candidate accepted it and it awaits its end."""
        return (
            self.state is State.AWAITING
            and self.cascade is not None
            and bool(self.cascade.accepted)
        )

    def clone(self) -> JobRow:
        """Return a copy."""
        return replace(self)


@dataclass(slots=True, kw_only=True)
class RunRow:
    """An ended run of a job that continued; `ended_at` is None only in views of a live run."""

    job: str
    run: int
    attempt: int
    stage: str
    worker: str
    claimed_at: int
    handed_at: int | None
    ended_at: int | None
    outcome: str
    error: str
    members: dict[str, str]
    blocked_ms: int
    due_at: int
    candidate: str = ""


class GatedStart(NamedTuple):
    """A start with permits, as it is written to its job."""

    seq: int
    members: dict[str, str]
    candidate: str
    cascade: Cascade | None
    blocked_ms: int


class ClosedPeriod(NamedTuple):
    """A time during which the claims of this process found a flow shut.

    Attributes:
        since: the first claim that found it shut.
        until: the first claim that found it open again; None while it is shut.
    """

    since: int
    until: int | None

    def overlap_ms(self, begin: int, end: int) -> int:
        """Return how much of an interval overlaps the period, ms."""
        until = end if self.until is None else min(self.until, end)
        return max(0, until - max(self.since, begin))


class Finished(NamedTuple):
    """The result of `finish_plain`.

    Attributes:
        lanes: the lane of each run, in the order of the request; None if it was left unchanged.
        gated: whether any run that ended was gated.
    """

    lanes: list[str | None]
    gated: bool


class DueFire(NamedTuple):
    """A fire of a timetable entry that is due and has not run."""

    seq: int
    id: str
    entry: str
    due_at: int
    lane: str


class HeldRow(NamedTuple):
    """A run that a worker holds."""

    id: str
    run: int
    request: int
    state: State
    cancel_requested: bool


@dataclass(slots=True)
class LaneRow:
    """A lane: its declared spec, an operator's override, and its fairness level."""

    name: str
    spec: LaneSpec | None = None
    override: LaneSpec | None = None
    level: int = 0

    @property
    def current(self) -> LaneSpec:
        """The spec that applies now."""
        return self.override or self.spec or LaneSpec(name=self.name)


class KeyRow(NamedTuple):
    """A tenant's enqueue key; valid while `until_at` is None, and afterwards until that time."""

    tenant: str
    key: str
    job: str
    body: bytes
    until_at: int | None


@dataclass(slots=True)
class SignalRow:
    """An event that was received.

    Attributes:
        scope: the job's id, or the key itself while no run is known by it.
        event: the event's id; unique in the scope.
        kept_until: until when it is kept for a run that does not await it yet; None once applied.
        payload: the encoded signal while it is kept; then `LATE`, or empty if it was applied.
    """

    LATE: ClassVar[bytes] = b"late"

    scope: str
    event: str
    key: str
    at: int
    kept_until: int | None = None
    payload: bytes = b""


@dataclass(slots=True)
class WorkerRow:
    """A worker, by its random id.

    Attributes:
        request: number of its last claim.
        lapsed: its lease has ended, and its jobs were taken from it.
    """

    id: str
    name: str = ""
    lanes: tuple[str, ...] = ()
    seen_at: int = 0
    lease_until: int = 0
    request: int = 0
    lapsed: bool = False


@dataclass(slots=True)
class EntryRow:
    """A timetable entry; `spec` is None if it was removed."""

    name: str
    spec: EntrySpec | None
    revision: int
    last_fired: int | None = None
    ahead_until: int | None = None
    folded: int = 0
    first_seen_at: int = 0


class TrailRow(NamedTuple):
    """One line of the trail; the ledger assigns `seq`."""

    seq: int
    at: int
    author: str
    reason: str
    verb: str
    target: str
    detail: str
