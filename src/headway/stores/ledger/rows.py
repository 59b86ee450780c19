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
    """A job; a msgspec struct, because it is created and copied for each job of a batch.

    It cannot be part of a reference cycle, so the garbage collector need not visit it.

    Attributes:
        seq: arrival; given by the ledger at insert, 0 before.
        body: hash of what a repeated enqueue must agree on, after an edit changed the fields;
            empty before.
        flow: number of its flow, which has lane, tenant, kind and shared gates.
        keyed: its keyed gates, as asked; `{candidate}` not filled in.
        care: its end takes more than writing its state and returning its permits: key, follow-up,
            cascade, entry, signal keys, a requested cancel, or a retention of its own.
        ticket: the keyed gate that it was fed from, while it waits.
        ticket_amount: how many permits it asks for there.
        parked_at: the keyed gate where it is parked.
        unfit: it asks for more than that gate's capacity.
        blocked_ms: time spent parked since it was due.
        worker: the holder of the run; while awaiting, only until its handler has returned.
        last_worker: the holder of the run that ended or whose handler has returned.
        request: the worker's claim request that took it.
        members: gates taken by this run: the member of a pool, "" for other kinds.
        gated: this run took anything at all.
        candidate: of a cascade, whose turn this run is.
        cancel_requested: a cancel waits for the end of the run.
        reconciles: how many reconcile jobs this run has had; negative after its deadline was
            extended, because the provider is asked again at the new one.
        purge_at: when it may be removed; set at its end.
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
        """Whether a candidate accepted it, and it awaits its end."""
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
    """A run that ended, of a job that went on; `ended_at` is None in a view of one that lives."""

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


class ShutSpell(NamedTuple):
    """A time during which the claims of this process found a flow shut.

    Attributes:
        since: time of the first claim that did.
        until: time of the first that found it open again; None while it is shut.
    """

    since: int
    until: int | None

    def overlap_ms(self, begin: int, end: int) -> int:
        """Return how much of an interval lies in the spell, ms."""
        until = end if self.until is None else min(self.until, end)
        return max(0, until - max(self.since, begin))


class Finished(NamedTuple):
    """The result of `finish_plain`.

    Attributes:
        lanes: for each run, in the order asked, its lane; None for one that was left untouched.
        gated: whether any that ended had taken anything.
    """

    lanes: list[str | None]
    gated: bool


class DueRow(NamedTuple):
    """A scheduled job that is due."""

    seq: int
    id: str
    entry: str | None
    fired_at: int | None


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
    """A key of a tenant; valid while `until_at` is None, and then until that moment."""

    tenant: str
    key: str
    job: str
    body: bytes
    until_at: int | None


@dataclass(slots=True)
class SignalRow:
    """An event that was received.

    Attributes:
        scope: the job's id, or the key's text while no run is known under it.
        event: the event's id; unique in the scope.
        kept_until: until when it is kept for a run that does not await it yet; None once applied.
        payload: the signal, encoded, while it is kept; then `LATE`, or empty if it was applied.
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
        request: the number of its last claim.
        lapsed: a sweep has seen its lease end.
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
    """A timetable entry; `spec` is None for one that was removed."""

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
