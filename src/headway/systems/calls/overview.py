"""The state of calls that alert rules and metrics read: dials, backlog, lines, tally."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from headway.contract.store import Store
from headway.contract.views import (
    GatesQuery,
    GateState,
    JobQuery,
    JobsQuery,
    JobView,
    LaneView,
    SpecsQuery,
    WorkerView,
)
from headway.core.gates.kinds import traits_of
from headway.core.state import FINAL, State
from headway.server.alerts.rule_set import Facts
from headway.server.finding import bounded_page
from headway.server.overview import Overview
from headway.systems.calls.lead import LANE, LEAD
from headway.systems.directory.tally import Tally, Totals
from headway.systems.jobs import find_lane


class CountedEvent(StrEnum):
    """Events that are counted in the tally, by a label."""

    OUTCOME = "outcome"
    """An attempt ended. Label: its outcome."""
    WEBHOOK_ORPHAN = "webhook_orphan"
    """A webhook belonged to no known call. Label: its provider."""
    WEBHOOK_LATE = "webhook_late"
    """A webhook arrived after its call was settled. Label: the number."""
    WEBHOOK_TWICE = "webhook_twice"
    """A webhook was repeated. Label: the number."""
    WEBHOOK_LOST = "webhook_lost"
    """The end of a call became known by a query at its deadline, or never. Label: the number."""
    INTAKE = "intake"
    """A request with leads was answered. No label."""
    INTAKE_FAILED = "intake_failed"
    """A request with leads failed with a status of 500 or more. No label."""
    REPORT_FAILED = "report_failed"
    """An attempt to report a result failed. No label."""


RECENT_MS = 300_000
"""Maximum age of the dials that are read."""
NEWEST = 250
"""Maximum number of newest leads read of each group: awaiting ones, and finished ones."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Dials:
    """Recent dials.

    Attributes:
        due_to_dial_ms: times from due to dial without waits at gates, ascending.
        gate_wait_ms: waits at gates, ascending.
    """

    due_to_dial_ms: Sequence[int]
    gate_wait_ms: Sequence[int]


async def read_dials(store: Store, now: int) -> Dials:
    """Return the dials of the last five minutes, from a bounded number of leads.

    Args:
        now: the store's time, ms UTC.
    """
    due: list[int] = []
    gates: list[int] = []
    for states in ((State.AWAITING,), tuple(sorted(FINAL))):
        query = JobsQuery(kind=LEAD, lane=LANE, states=states, runs=True, newest=True, limit=NEWEST)
        for job in (await bounded_page(store, query)).rows:
            for run in job.runs:
                if run.handed_at is None or run.handed_at < now - RECENT_MS:
                    continue
                waited = run.handed_at - max(run.due_at, job.created_at)
                due.append(max(0, waited - run.blocked_ms))
                gates.append(min(run.blocked_ms, max(0, waited)))
    return Dials(due_to_dial_ms=sorted(due), gate_wait_ms=sorted(gates))


EACH_END = 250
"""Number of waiting leads read from each end of the backlog."""
MOST_FLOWS = 32
"""Maximum number of their flows of which it is read whether they can run, largest first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Backlog:
    """Leads that are due and waiting.

    Attributes:
        waiting: number of leads in flows.
        parked: number of leads at keyed gates, such as a customer's rate.
        ready: number of waiting leads that could start at once; of many, an estimate by a sample.
        by_tenant: number of sampled leads by reseller.
        by_gate: number of sampled leads by a gate that they need.
    """

    waiting: int
    parked: int
    ready: int
    by_tenant: Mapping[str, int]
    by_gate: Mapping[str, int]

    @property
    def overdue(self) -> int:
        """Number of waiting and parked leads."""
        return self.waiting + self.parked

    @property
    def largest(self) -> tuple[str, float]:
        """The reseller with the most sampled leads, and its share of them.

        An empty name and 0 if fewer than two resellers have any.
        """
        if len(self.by_tenant) < 2:
            return "", 0.0
        tenant, most = max(self.by_tenant.items(), key=lambda one: one[1])
        return tenant, most / sum(self.by_tenant.values())


async def read_backlog(store: Store, lane: LaneView | None) -> Backlog:
    """Return the backlog, sampled at both ends by a bounded number of reads.

    Args:
        lane: the lane of calls; None if it has had no job yet.
    """
    counts = {} if lane is None else lane.counts
    waiting = counts.get(State.WAITING, 0)
    rows: dict[str, JobView] = {}
    for newest in (False, True) if waiting else ():
        query = JobsQuery(
            lane=LANE, kind=LEAD, states=(State.WAITING,), newest=newest, limit=EACH_END
        )
        rows |= {job.id: job for job in (await bounded_page(store, query)).rows}
    ready, asked = await _ready(store, list(rows.values()))
    whole = asked >= waiting
    return Backlog(
        waiting=waiting,
        parked=counts.get(State.PARKED, 0),
        ready=ready if whole else waiting * ready // max(1, asked),
        by_tenant=Counter(job.tenant for job in rows.values()),
        by_gate=Counter(gate.name for job in rows.values() for gate in job.gates),
    )


async def _ready(store: Store, jobs: Sequence[JobView]) -> tuple[int, int]:
    """Return how many jobs could start now, of how many examined; one job represents its flow."""
    flows: dict[tuple[str, str, str, tuple[str, ...]], list[JobView]] = {}
    for job in jobs:
        gates = tuple(sorted(gate.name for gate in job.gates if gate.shared))
        flows.setdefault((job.tenant, job.kind, job.stage, gates), []).append(job)
    largest = sorted(flows.values(), key=len, reverse=True)[:MOST_FLOWS]
    ready = 0
    for flow in largest:
        view = await store.read(JobQuery(id=flow[0].id))
        if view is not None and view.shown == "ready":
            ready += len(flow)
    return ready, sum(map(len, largest))


POOLS = ("calls.numbers", "calls.pool:")
"""Prefixes of the names of number pools."""
MOST_POOLS = 500
"""Maximum number of pools that are read, the first by name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A number with its channels.

    Attributes:
        number: E.164.
        used: number of channels in use.
        capacity: number of channels; 0 if the number is disabled.
        closed: who closed it, and why; empty if it is open.
    """

    number: str
    used: int
    capacity: int
    closed: str

    @property
    def usable(self) -> bool:
        """Whether calls can be made from it, now or when a channel becomes free."""
        return self.capacity > 0 and not self.closed

    @property
    def free(self) -> int:
        """Number of channels from which a call can be made now."""
        return max(0, self.capacity - self.used) if self.usable else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class LinePool:
    """A pool of numbers.

    Attributes:
        closed: whether an operator has closed the whole pool.
        lines: its numbers, in numerical order.
    """

    name: str
    closed: bool
    lines: tuple[Line, ...]

    @property
    def free(self) -> int:
        """Number of channels from which a call can be made now."""
        return 0 if self.closed else sum(line.free for line in self.lines)

    @property
    def usable(self) -> bool:
        """Whether any of its numbers can be used."""
        return any(line.usable for line in self.lines)


def without_number(pools: Sequence[LinePool], waits: Mapping[str, int]) -> dict[str, LinePool]:
    """Return the pools that leads wait for and that have no usable number, by name.

    A pool that an operator has closed as a whole is omitted.
    """
    return {
        pool.name: pool
        for pool in pools
        if not pool.usable and not pool.closed and waits.get(pool.name, 0)
    }


async def read_lines(store: Store) -> tuple[LinePool, ...]:
    """Return the pools of numbers, ordered by name, with two bounded reads."""
    specs = await store.read(SpecsQuery())
    names = sorted(
        spec.name
        for spec in specs
        if traits_of(spec.kind).chooses_member
        if spec.name.startswith(POOLS) and "{" not in spec.name
    )[:MOST_POOLS]
    if not names:
        return ()
    return tuple(_pool(state) for state in (await store.read(GatesQuery(names=tuple(names)))).rows)


def _pool(state: GateState) -> LinePool:
    lines = (_line(state.name, member) for member in state.members)
    return LinePool(
        name=state.name,
        closed=state.closed_until is not None,
        lines=tuple(sorted(lines, key=lambda line: line.number)),
    )


def _line(pool: str, member: GateState) -> Line:
    closed = ""
    if member.closed_until is not None:
        closed = f"closed by {member.closed_by}: {member.closed_reason}"
    return Line(
        number=member.name.removeprefix(f"{pool}/"),
        used=member.used,
        capacity=member.capacity or 0,
        closed=closed,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class CallsOverview:
    """The state of calls at one time.

    Attributes:
        at: time on a monotonic clock, ms.
        now: the store's time, ms UTC.
        pools: number pools, ordered by name.
        workers: workers that serve the lane of calls, including those lost in the last hour.
    """

    at: int
    now: int
    backlog: Backlog
    pools: tuple[LinePool, ...]
    dials: Dials
    workers: tuple[WorkerView, ...]
    totals: Totals


async def read_calls(store: Store, tally: Tally, facts: Facts) -> CallsOverview | None:
    """Read the state of calls with about ten bounded reads, and up to one for each of 32 flows.

    Returns:
        None if the store does not reply, or if another server watches it.
    """
    if facts.overview is None:
        return None
    overview = facts.overview
    now = overview.stats.now
    return CallsOverview(
        at=facts.at,
        now=now,
        backlog=await read_backlog(store, find_lane(overview, LANE)),
        pools=await read_lines(store),
        dials=await read_dials(store, now),
        workers=workers_of(overview),
        totals=await tally.totals(),
    )


def workers_of(overview: Overview) -> tuple[WorkerView, ...]:
    """Return the workers that serve the lane of calls, including those lost in the last hour."""
    return tuple(worker for worker in overview.workers if LANE in worker.lanes)
