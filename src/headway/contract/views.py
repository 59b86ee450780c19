"""Queries to a store, and the views that they return."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Generic, TypeVar, cast

from headway.contract.definitions import EntrySpec, LaneSpec, TokenSpec
from headway.core.cascade import Cascade
from headway.core.gates.kinds import traits_of
from headway.core.gates.spec import GateSpec, GateTraits, GateUse
from headway.core.job import JobPolicy
from headway.core.naming import check_text
from headway.core.state import State

Reply = TypeVar("Reply")


@dataclass(frozen=True, kw_only=True, slots=True)
class Query(Generic[Reply]):
    """A query; its type parameter is the type of the reply.

    Raises:
        InvalidValue: a text in it contains NUL or a lone surrogate. An impossible id is only
            unknown, like any other that does not exist.
    """

    def __post_init__(self) -> None:
        """Validate the texts, because the stores differ in those that they cannot compare."""
        for one in fields(self):
            if one.name in {"id", "ids"}:
                continue
            value: object = getattr(self, one.name)
            if isinstance(value, str):
                check_text(one.name, value)
            elif isinstance(value, tuple):
                for text in cast("tuple[str, ...]", value):
                    check_text(one.name, text)


@dataclass(frozen=True, kw_only=True, slots=True)
class Page(Generic[Reply]):
    """One page of a listing.

    Attributes:
        rows: rows, in the order of the listing.
        cursor: cursor for the next call; None at the end. A page may be short or even empty and
            still have a cursor, because only a bounded number of rows is examined, and a bounded
            number of bytes returned.
    """

    rows: tuple[Reply, ...]
    cursor: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunView:
    """One run of a job.

    Attributes:
        run: number of the run, from 1, never reset.
        attempt: attempt in its life, from 1.
        stage: stage, for a kind with stages.
        worker: random id of the worker.
        claimed_at: when it started.
        handed_at: when it was handed over; None if it was not.
        ended_at: when it was settled; None while it is live.
        outcome: one word: succeeded, failed, snoozed, lost, …; empty while it is live.
        error: error that this run ended with; empty if there was none.
        permits: each gate that it took, with the chosen member, or "" if it is not a pool.
        blocked_ms: how much of its wait was spent at closed gates.
        due_at: when it was due.
        candidate: candidate, for a cascade.
        keys: keys under which signals find it, besides its reference, by name.
    """

    run: int
    attempt: int
    stage: str
    worker: str
    claimed_at: int
    handed_at: int | None
    ended_at: int | None
    outcome: str
    error: str
    permits: dict[str, str]
    blocked_ms: int
    due_at: int
    candidate: str = ""
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class NoteView:
    """One line of a job's trail: an operator's action, a note or a signal."""

    at: int
    what: str
    author: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class JobView:
    """A job with its whole record.

    Attributes:
        state: state as stored.
        shown: state as shown: `ready` and `blocked` replace `waiting` if that is known.
        gates: gates of its stage, shared ones first.
        run: run number of the last claim; 0 if it was never claimed.
        attempt: attempts used in this life, including the current one.
        life: 1, plus one for each retry by an operator.
        reason: reason for its end or its last failure; empty once it has succeeded without one.
        error: error of its last failed run; empty once a run has died without an error, or has
            handed over.
        runs: runs, oldest first; empty in listings that do not request them.
        trail: the last hundred lines, oldest first; empty in listings that do not request it.
        in_doubt: whether it is awaiting, and its worker died before the handler returned.
        seq: order of arrival; it increases from job to job, with gaps.
        (the others: as in NewJob and RunView)
    """

    id: str
    kind: str
    lane: str
    tenant: str
    subject: str | None
    stage: str
    state: State
    shown: str
    priority: int
    due_at: int
    created_at: int
    expires_at: int | None
    finished_at: int | None
    deadline_at: int | None
    args: bytes
    result: bytes | None
    progress: bytes | None
    key: str | None
    gates: tuple[GateUse, ...]
    policy: JobPolicy
    run: int
    attempt: int
    life: int
    reason: str
    error: str
    parked_at: str | None
    worker: str | None
    cancel_requested: bool
    in_doubt: bool
    entry: str | None
    fired_at: int | None
    cascade: Cascade | None
    seq: int
    runs: tuple[RunView, ...] = ()
    trail: tuple[NoteView, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class JobQuery(Query[JobView | None]):
    """One job with its runs and trail."""

    id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class JobsQuery(Query[Page[JobView]]):
    """Jobs that match all given filters, oldest arrival first.

    Attributes:
        ids: only these jobs, in this order.
        key: with `tenant`, the job that has this key, if it matches the other filters.
        subject: with `tenant`, the jobs about this subject.
        tenant: only jobs of this tenant; None for all, "" for jobs without one.
        worker: only running and awaiting jobs of this worker, in the order in which jobs start; no
            other filter applies, and there is one page.
        states: only jobs in these states; empty for all.
        runs: whether to include each job's runs.
        trail: whether to include each job's trail.
        newest: newest arrival first.
        limit: 1 to 1000.
    """

    ids: tuple[str, ...] | None = None
    key: str | None = None
    subject: str | None = None
    lane: str | None = None
    tenant: str | None = None
    kind: str | None = None
    worker: str | None = None
    states: tuple[State, ...] = ()
    runs: bool = False
    trail: bool = False
    newest: bool = False
    cursor: str | None = None
    limit: int = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitingFlow:
    """Waiting or parked jobs of one lane, tenant, kind and set of shared gates.

    Attributes:
        tenant: tenant; "" for none.
        shared: the gates without a key that each of them needs.
        parked_at: the keyed gate at which the jobs are parked; None for waiting jobs.
        unfit: whether the jobs need more than the gate can ever give.
        count: number of waiting jobs, exact up to 1000; for parked ones, the number of ids in
            `first`.
        first: the ids of the first jobs, in the order in which they start.
    """

    lane: str
    tenant: str
    kind: str
    shared: tuple[GateUse, ...]
    parked_at: str | None
    unfit: bool = False
    count: int
    first: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowsQuery(Query[Page[WaitingFlow]]):
    """The flows with waiting jobs of a lane, or those with jobs parked at a gate.

    Its cost depends on the flows and jobs that it returns and counts, not on the number of other
    jobs. So it finds jobs among any number of others, whereas `JobsQuery` examines a bounded number
    of jobs by arrival. The first page of a gate starts with the first `first` of its unfit jobs;
    they do not count towards `limit`.

    Attributes:
        lane: lane whose waiting jobs are read; ignored if `gate` is given.
        gate: resolved name of a keyed gate whose parked jobs are read.
        first: number of ids to return for each flow, 1 to 100.
        limit: maximum number of flows, 1 to 100.
    """

    lane: str = ""
    gate: str | None = None
    first: int = 1
    cursor: str | None = None
    limit: int = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class HolderView:
    """A permit and its holder."""

    gate: str
    job: str
    run: int
    member: str
    amount: int
    since: int


@dataclass(frozen=True, kw_only=True, slots=True)
class GateState:
    """The current state of a gate.

    Attributes:
        name: resolved name, or the template's if no instance is meant.
        kind: slots, rate, hours or pool; "implicit" for a gate that is only open or closed.
        shared: whether jobs wait for it in their flows.
        template: name under which it is declared; None for an implicit gate.
        capacity: number of permits, or the limit of a rate; None if it is unlimited or has none.
        per_ms: window of a rate.
        used: permits held, or starts in the window.
        free: how much one job could take now, so for a pool the most that one member has free; None
            for unlimited.
        open: whether one permit could be taken now.
        opens_at: when it opens by itself, if it is closed and that is known.
        closed_until: when a closing ends; None if there is none; a time in the year 9999 or later
            means indefinitely.
        closed_by: who closed it.
        closed_reason: why it is closed.
        overridden: whether an operator's value applies.
        reserved: how much of what is or becomes free is reserved for one job that needs that much.
        reserved_for: id of that job.
        holders: the first ten holders, oldest first.
        holder_count: number of all holders.
        parked: number of jobs parked at it, exact up to 1000.
        members: members of a pool.
        horizon_at: for an Hours: its times are known up to here, and after that it is closed.
    """

    name: str
    kind: str
    shared: bool
    template: str | None
    capacity: int | None
    per_ms: int | None
    used: int
    free: int | None
    open: bool
    opens_at: int | None
    closed_until: int | None
    closed_by: str
    closed_reason: str
    overridden: bool
    reserved: int = 0
    reserved_for: str | None = None
    holders: tuple[HolderView, ...] = ()
    holder_count: int = 0
    parked: int = 0
    members: tuple[GateState, ...] = ()
    horizon_at: int | None = None

    @property
    def implicit(self) -> bool:
        """Whether it is one of the gates that every job passes, or a name that is not declared."""
        return self.template is None

    @property
    def traits(self) -> GateTraits:
        """What its kind does."""
        return traits_of(self.kind)


@dataclass(frozen=True, kw_only=True, slots=True)
class GatesQuery(Query[Page[GateState]]):
    """Gates that are declared, capped, closed, or held, by name.

    Attributes:
        names: only these gates.
        parked: only gates with parked jobs; the cost of a page depends only on the gates in it.
    """

    names: tuple[str, ...] | None = None
    parked: bool = False
    cursor: str | None = None
    limit: int = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class SpecsQuery(Query[tuple[GateSpec, ...]]):
    """The declared gates, with operators' values applied."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WhyView:
    """Why a job is in its current state.

    Attributes:
        id: id of the job.
        state: state as stored.
        shown: state as shown.
        sentence: the whole explanation in one sentence.
        closed: every gate that is closed for it, in the order in which it needs them.
        never_fits: gates that, as defined now, could never give what it needs.
        place: its position in its flow, from 1, exact up to 1000; None if it waits in none.
        workers: number of live workers that serve its lane.
        now: current time of the store.
        next_at: when the next known event happens: due time, opening, deadline or end of a lease.
    """

    id: str
    state: State
    shown: str
    sentence: str
    closed: tuple[GateState, ...]
    never_fits: tuple[str, ...]
    place: int | None
    workers: int
    now: int
    next_at: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class WhyQuery(Query[WhyView | None]):
    """Why a job is not running; the cost is bounded at any size of the store."""

    id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneView:
    """A lane, its settings, and how many jobs it has in each state."""

    name: str
    spec: LaneSpec
    overridden: bool
    counts: dict[str, int]
    workers: int
    oldest_due_at: int | None
    paused: bool

    @property
    def unfinished(self) -> int:
        """Number of jobs that are not final."""
        return sum(n for s, n in self.counts.items() if s not in {"succeeded", "dead", "cancelled"})


@dataclass(frozen=True, kw_only=True, slots=True)
class LanesQuery(Query[tuple[LaneView, ...]]):
    """Lanes by name: all, or only these."""

    names: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerView:
    """A worker: its random id, its lanes, how many runs it holds, and when its lease ends."""

    id: str
    name: str
    lanes: tuple[str, ...]
    seen_at: int
    lease_until: int
    running: int


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkersQuery(Query[tuple[WorkerView, ...]]):
    """Workers that are live, or stopped less than an hour ago."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EntryView:
    """A timetable entry.

    Attributes:
        revision: changes with each edit.
        last_fired: nothing fires any more up to this time, ms UTC. Fires are created ahead, so it
            may be in the future, and after a change it need not be the time of a fire; None before
            the first.
        ahead_until: time up to which fires are created ahead; None if there are none under this
            revision.
        folded: number of fires that a policy omitted.
        first_seen_at: when the store first saw the entry.
    """

    spec: EntrySpec
    revision: int
    last_fired: int | None
    ahead_until: int | None
    folded: int
    first_seen_at: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TimetableQuery(Query[tuple[EntryView, ...]]):
    """Entries by name: all, or only these."""

    names: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class StatsView:
    """Counts of the whole store.

    Attributes:
        now: current time of the store.
        counts: number of jobs by state.
        totals: totals since the store was created: enqueued, started, succeeded, failed, retried,
            dead, cancelled, lost, snoozed, handed_over, parked, fed, folded, signals, late_signals.
        identity: identity of the store.
        epoch: epoch of the store.
        revision: revision of the definitions.
        clock_ahead_ms: by how much the store's time is ahead of its clock.
    """

    now: int
    counts: dict[str, int]
    totals: dict[str, int]
    identity: str
    epoch: int
    revision: int
    clock_ahead_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StatsQuery(Query[StatsView]):
    """Counts of the whole store, without a scan."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrailView:
    """One action by an operator or by code."""

    seq: int
    at: int
    author: str
    reason: str
    verb: str
    target: str
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TrailQuery(Query[Page[TrailView]]):
    """The trail of the store, or only of one target, newest first."""

    target: str | None = None
    cursor: str | None = None
    limit: int = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenView:
    """A token, its author, and when it was created and last used.

    Attributes:
        spec: with the digests of its secrets.
        created_at: when it was created.
        created_by: who created it.
        used_at: when it was last used, exact to a minute; None for never.
    """

    spec: TokenSpec
    created_at: int
    created_by: str
    used_at: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TokensQuery(Query[tuple[TokenView, ...]]):
    """Tokens by id: all, at most 10,000, or only these."""

    ids: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """An inconsistency."""

    where: str
    what: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditView:
    """The result of an audit, without differences unless there is a bug.

    Attributes:
        differences: inconsistencies found.
        gates: how many gates were compared.
        permits: how many permits were compared.
        held: how many running and awaiting jobs were examined.
        cursor: cursor for the next page; None at the end.
    """

    differences: tuple[Difference, ...] = field(default=())
    gates: int = 0
    permits: int = 0
    held: int = 0
    cursor: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditQuery(Query[AuditView]):
    """Compares permits with holders, and caches with permits, in one snapshot per page.

    Attributes:
        limit: maximum number of rows compared for a page, at least 1; a store may compare fewer.
    """

    cursor: str | None = None
    limit: int = 10_000
