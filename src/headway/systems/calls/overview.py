"""What the alert rules and metrics of calls read: dials, backlog, lines, tally."""

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
from headway.core.gates.spec import GateKind
from headway.core.state import FINAL, State
from headway.server.alerts.rule_book import Facts
from headway.server.finding import bounded_page
from headway.server.overview import Overview
from headway.systems.calls.lead import LANE, LEAD
from headway.systems.directory.tally import Tally, Totals
from headway.systems.jobs import find_lane


class Event(StrEnum):
    """What is counted; behind each, what its label is."""

    OUTCOME = "outcome"
    """An attempt ended; its outcome."""
    WEBHOOK_ORPHAN = "webhook_orphan"
    """A webhook was of no call that is known; its provider."""
    WEBHOOK_LATE = "webhook_late"
    """A webhook came when its call was settled; its number."""
    WEBHOOK_TWICE = "webhook_twice"
    """A webhook came again; its number."""
    WEBHOOK_LOST = "webhook_lost"
    """The end of a call was learnt by asking, or not at all; its number."""
    INTAKE = "intake"
    """A request that brought leads was answered; no label."""
    INTAKE_FAILED = "intake_failed"
    """One of these was answered with 500 or more; no label."""
    REPORT_FAILED = "report_failed"
    """A result could not be reported to its caller; no label."""


RECENT_MS = 300_000
"""A dial that is longer ago says nothing about now."""
NEWEST = 250
"""Leads under calls, and leads that have ended, that are looked at: the newest of each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Dials:
    """The calls that were dialled lately.

    Attributes:
        due_to_dial_ms: from due to dial, in growing order; waits behind gates are left out.
        gate_wait_ms: the waits behind gates, in growing order.
    """

    due_to_dial_ms: Sequence[int]
    gate_wait_ms: Sequence[int]


async def look_at_dials(store: Store, now: int) -> Dials:
    """Return the calls of the last five minutes, of a bounded number of leads.

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
"""Waiting leads that are looked at: the first and the last to come."""
MOST_FLOWS = 32
"""Flows of these that are asked whether they can run, the largest first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Backlog:
    """Leads that are due and wait.

    Attributes:
        parked: at gates of their own, such as a customer's rate.
        ready: of those in flows, how many could go at once; of very many, by a sample.
        by_tenant: of those that were looked at.
        by_gate: of those that were looked at, how many need it.
    """

    waiting: int
    parked: int
    ready: int
    by_tenant: Mapping[str, int]
    by_gate: Mapping[str, int]

    @property
    def overdue(self) -> int:
        """All of them."""
        return self.waiting + self.parked

    @property
    def largest(self) -> tuple[str, float]:
        """The reseller with most of those that were looked at, and its share of them.

        An empty name and 0 if fewer than two resellers wait.
        """
        if len(self.by_tenant) < 2:
            return "", 0.0
        tenant, most = max(self.by_tenant.items(), key=lambda one: one[1])
        return tenant, most / sum(self.by_tenant.values())


async def look_at_backlog(store: Store, lane: LaneView | None) -> Backlog:
    """Look at the leads that came first and last; a bounded number of reads.

    Args:
        lane: of the leads; None if there was none yet.
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
    """Return how many of how many could start now; one job of each flow stands for all of it."""
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
"""How the names of pools of numbers begin."""
MOST_POOLS = 500
"""Pools that are looked at, the first by name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A number with its channels.

    Attributes:
        number: in E.164.
        capacity: channels that it has; 0 for a number that is switched off.
        closed: why it is closed, and by whom; empty if it is open.
    """

    number: str
    used: int
    capacity: int
    closed: str

    @property
    def usable(self) -> bool:
        """Whether a call can be made from it, now or when a channel is free."""
        return self.capacity > 0 and not self.closed

    @property
    def free(self) -> int:
        """Channels from which a call can be made now."""
        return max(0, self.capacity - self.used) if self.usable else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class LinePool:
    """A pool of numbers.

    Attributes:
        closed: whether an operator has closed the whole pool.
        lines: its numbers, by name.
    """

    name: str
    closed: bool
    lines: tuple[Line, ...]

    @property
    def free(self) -> int:
        """Channels from which a call can be made now."""
        return 0 if self.closed else sum(line.free for line in self.lines)

    @property
    def usable(self) -> bool:
        """Whether any of its numbers can be used."""
        return any(line.usable for line in self.lines)


def without_number(pools: Sequence[LinePool], waits: Mapping[str, int]) -> dict[str, LinePool]:
    """Return the pools for which leads wait, and of which no number can be used, by name.

    A pool that an operator has closed as a whole is left out: it waits on purpose.
    """
    return {
        pool.name: pool
        for pool in pools
        if not pool.usable and not pool.closed and waits.get(pool.name, 0)
    }


async def look_at_lines(store: Store) -> tuple[LinePool, ...]:
    """Return the pools of numbers, by name; two bounded reads."""
    specs = await store.read(SpecsQuery())
    names = sorted(
        spec.name
        for spec in specs
        if spec.kind is GateKind.POOL and spec.name.startswith(POOLS) and "{" not in spec.name
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
    """What is known of calls at one look.

    Attributes:
        at: when, in ms on a clock that never goes back; only differences mean anything.
        now: the store's time, ms UTC.
        backlog: leads that are due and wait.
        dials: of the last minutes.
        workers: that serve the lane of calls, also those lost within an hour.
    """

    at: int
    now: int
    backlog: Backlog
    pools: tuple[LinePool, ...]
    dials: Dials
    workers: tuple[WorkerView, ...]
    totals: Totals


async def look_at_calls(store: Store, tally: Tally, facts: Facts) -> CallsOverview | None:
    """Look at calls; some ten bounded reads and at most one for each of 32 flows.

    Returns:
        None where the store does not answer, or is another server's to watch.
    """
    if facts.overview is None:
        return None
    overview = facts.overview
    now = overview.stats.now
    return CallsOverview(
        at=facts.at,
        now=now,
        backlog=await look_at_backlog(store, find_lane(overview, LANE)),
        pools=await look_at_lines(store),
        dials=await look_at_dials(store, now),
        workers=workers_of(overview),
        totals=await tally.totals(),
    )


def workers_of(overview: Overview) -> tuple[WorkerView, ...]:
    """Return the workers that serve the lane of calls, also those lost within an hour."""
    return tuple(worker for worker in overview.workers if LANE in worker.lanes)
