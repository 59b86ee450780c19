"""What is held up, grouped by cause: counts of lanes, and why the first jobs of each stand there.

The jobs of a lane are counted by the store; why they do not run is asked of a few of them, one for
each flow (tenant, kind and shared gates) that is met among the oldest. So its cost follows the
lanes that hold jobs back, and never the number of jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headway.contract.store import Store
from headway.contract.views import GatesQuery, GateState, JobsQuery, JobView, LaneView, WhyQuery
from headway.core.state import State
from headway.server.overview import Overview

LANES = 10
"""Lanes that are looked into: those that hold most jobs."""
OLDEST = 25
"""Jobs of each that are looked at."""
FLOWS = 3
"""Of these, jobs for which it is asked why."""
READY_MS = 2_000
"""A job that could start and has waited this long waits for a free handler."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cause:
    """Why jobs are held up.

    Attributes:
        kind: "closed", "full", "hours", "never_fits", "paused", "no_worker", "busy", or
            "unknown" where none of the jobs was found.
        gate: the gate that holds them, if one does.
        lane: the lane, where the cause is the lane's own.
        count: how many jobs.
        about: whether the count is an estimate from a sample.
        lanes: where they are, by name.
        keys: of a keyed gate, how many of its instances were seen to hold jobs.
        job: one of them.
        sentence: why that one does not run, whole.
        oldest_at: when the oldest of them was due, ms UTC.
    """

    kind: str
    gate: GateState | None = None
    lane: str = ""
    count: int = 0
    about: bool = False
    lanes: tuple[str, ...] = ()
    keys: int = 0
    job: str = ""
    sentence: str = ""
    oldest_at: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Stuck:
    """All that is held up, the most jobs first.

    Attributes:
        causes: by number of jobs.
        waiting: jobs that are due and have not started.
        more_lanes: lanes with such jobs that were not looked into.
    """

    causes: tuple[Cause, ...]
    waiting: int
    more_lanes: int


@dataclass(slots=True)
class _Group:
    cause: Cause
    lanes: set[str] = field(default_factory=set[str])
    keys: set[str] = field(default_factory=set[str])
    count: float = 0
    about: bool = False
    oldest_at: int | None = None


async def find_stuck(store: Store, seen: Overview) -> Stuck:
    """Find what is held up.

    Args:
        store: which is asked about single jobs.
        seen: a moment ago.

    Raises:
        StoreError: the store cannot tell now.
    """
    held = sorted((one for one in seen.lanes if _held(one)), key=_held, reverse=True)
    groups: dict[tuple[str, str], _Group] = {}
    (everything,) = (await store.read(GatesQuery(names=("all",)))).rows
    for lane in held[:LANES]:
        if everything.closed_until is not None:
            closed = Cause(kind="closed", gate=everything)
            _add(groups, ("closed", "all"), closed, lane, _held(lane))
            continue
        if lane.paused:
            paused = Cause(kind="paused", lane=lane.name, gate=await _lane_gate(store, lane.name))
            _add(groups, ("paused", lane.name), paused, lane, _held(lane))
            continue
        for state in (State.WAITING, State.PARKED):
            if lane.counts.get(state):
                await _look_into(store, lane, state, seen.stats.now, groups)
    causes = sorted((_told(one) for one in groups.values()), key=lambda one: -one.count)
    return Stuck(
        causes=tuple(causes),
        waiting=sum(map(_held, seen.lanes)),
        more_lanes=max(0, len(held) - LANES),
    )


async def stuck_among(store: Store, jobs: Sequence[JobView], now: int) -> Stuck:
    """The same of jobs that are given: for a caller that sees only its own."""
    groups: dict[tuple[str, str], _Group] = {}
    await _ask(store, jobs, float(len(jobs)), now, groups, about=False)
    causes = sorted((_told(one) for one in groups.values()), key=lambda one: -one.count)
    return Stuck(causes=tuple(causes), waiting=len(jobs), more_lanes=0)


def _held(lane: LaneView) -> int:
    return lane.counts.get(State.WAITING, 0) + lane.counts.get(State.PARKED, 0)


async def _lane_gate(store: Store, lane: str) -> GateState:
    (gate,) = (await store.read(GatesQuery(names=(f"lane:{lane}",)))).rows
    return gate


async def _look_into(
    store: Store, lane: LaneView, state: State, now: int, groups: dict[tuple[str, str], _Group]
) -> None:
    query = JobsQuery(lane=lane.name, states=(state,), limit=OLDEST)
    jobs = await some_jobs(store, query)
    if jobs:
        await _ask(store, jobs, lane.counts[state], now, groups, lane=lane, about=True)
    elif lane.oldest_due_at is not None and now - lane.oldest_due_at >= READY_MS:
        unknown = Cause(kind="unknown", lane=lane.name)
        _add(groups, ("unknown", lane.name), unknown, lane, lane.counts[state])


async def some_jobs(store: Store, query: JobsQuery) -> Sequence[JobView]:
    """The first jobs of a listing; where it reaches none from its beginning, the last.

    A listing goes by arrival and looks at a bounded number of jobs: behind many that have ended it
    finds none from the beginning, though some wait.

    Raises:
        StoreError: the store cannot tell now.
    """
    page = await store.read(query)
    if not page.rows and page.cursor is not None:
        page = await store.read(replace(query, newest=True))
    return page.rows


async def _ask(  # noqa: PLR0913  (the parts of one step)
    store: Store,
    jobs: Sequence[JobView],
    count: float,
    now: int,
    groups: dict[tuple[str, str], _Group],
    *,
    lane: LaneView | None = None,
    about: bool,
) -> None:
    """Add jobs to the groups of their causes, each flow's by what its first job is told."""
    flows: dict[object, list[JobView]] = {}
    for job in jobs:
        flows.setdefault(_flow(job), []).append(job)
    asked = sorted(flows.values(), key=len, reverse=True)[:FLOWS]
    whole = sum(map(len, asked))
    met: dict[tuple[str, str], _Group] = {}
    for some in asked:
        why = await store.read(WhyQuery(id=some[0].id))
        if why is None or why.state not in {State.WAITING, State.PARKED}:
            continue
        first = some[0]
        kind, gate = _kind(why.never_fits, why.closed, workers=why.workers)
        if kind == "busy" and now - first.due_at < READY_MS:
            continue
        keyed = gate is not None and not gate.shared and gate.template is not None
        named = first.lane if gate is None else gate.template if keyed else gate.name
        cause = Cause(kind=kind, gate=gate, lane=first.lane, job=first.id, sentence=why.sentence)
        key = (kind, named or "")
        group = met[key] = _add(groups, key, cause, lane, count * len(some) / whole, of=first.lane)
        if keyed:
            group.keys |= {
                one.parked_at for one in jobs if one.parked_at and _flow(one) == _flow(first)
            }
        due = min(one.due_at for one in some)
        group.oldest_at = due if group.oldest_at is None else min(group.oldest_at, due)
    for group in met.values():
        # With one cause for all that were asked the lane's count is the cause's.
        group.about |= about and (len(met) > 1 or len(flows) > FLOWS)


def _flow(job: JobView) -> object:
    """What jobs have in common that wait for the same."""
    if job.parked_at is not None:
        use = next((one for one in job.gates if one.name == job.parked_at), None)
        return job.parked_at if use is None else use.template
    return (job.tenant, job.kind, tuple(one.name for one in job.gates if one.shared))


def _kind(
    never: Iterable[str], shut: Sequence[GateState], *, workers: int
) -> tuple[str, GateState | None]:
    for gate in shut:
        if gate.name in set(never):
            return "never_fits", gate
    for gate in shut:
        if gate.closed_until is not None:
            return "closed", gate
    if shut:
        # What opens last, or at no known time, holds longest.
        gate = max(shut, key=lambda one: one.opens_at if one.opens_at is not None else 1 << 62)
        return ("hours" if gate.kind == "hours" else "full"), gate
    return ("busy" if workers else "no_worker"), None


def _add(
    groups: dict[tuple[str, str], _Group],
    key: tuple[str, str],
    cause: Cause,
    lane: LaneView | None,
    count: float,
    *,
    of: str = "",
) -> _Group:
    group = groups.setdefault(key, _Group(cause))
    group.lanes.add(lane.name if lane is not None else of)
    group.count += count
    if (
        lane is not None
        and lane.oldest_due_at is not None
        and cause.kind
        in {
            "closed",
            "paused",
            "unknown",
        }
    ):
        oldest = lane.oldest_due_at
        group.oldest_at = oldest if group.oldest_at is None else min(group.oldest_at, oldest)
    return group


def _told(group: _Group) -> Cause:
    cause = group.cause
    return Cause(
        kind=cause.kind,
        gate=cause.gate,
        lane=cause.lane,
        count=max(1, round(group.count)),
        about=group.about,
        lanes=tuple(sorted(group.lanes)),
        keys=len(group.keys),
        job=cause.job,
        sentence=cause.sentence,
        oldest_at=group.oldest_at,
    )


def by_lane(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    """Jobs by state, of several lanes together."""
    found: Counter[str] = Counter()
    for one in counts:
        found.update(one)
    return found
