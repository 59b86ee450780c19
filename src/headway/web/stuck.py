"""Jobs that are held up, grouped by cause.

The store counts the jobs of a lane; the cause is read for a few of them, each the first of a flow
(tenant, kind and shared gates). So the cost depends on the lanes with held-up jobs, never on the
number of jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headway.contract.store import Store
from headway.contract.views import (
    GatesQuery,
    GateState,
    JobsQuery,
    JobView,
    LaneView,
    WhyQuery,
    WhyView,
)
from headway.core.state import State
from headway.server.finding import (
    Flows,
    oldest_or_newest_jobs,
    parked_flows,
    parked_gates,
    waiting_flows,
)
from headway.server.overview import Overview

LANES = 10
"""Number of lanes examined: those with the most held-up jobs."""
FLOWS = 5
"""Number of jobs per lane whose cause is read, each the first of a flow."""
ALIKE = 2
"""If all flows are alike and the first `ALIKE` jobs have the same cause, no more are read."""
PARKED = 25
"""Number of parked jobs of each flow that are read as a sample."""
COUNTED = 1_000
"""Number of waiting jobs up to which a store counts a flow."""
READY_MS = 2_000
"""A job that could start and has waited for this long is waiting for a free handler."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cause:
    """Why jobs are held up.

    Attributes:
        kind: "closed", "full", "hours", "never_fits", "paused", "no_worker", "busy", or
            "unknown" if none of the jobs was found.
        gate: The gate that holds them, if there is one.
        lane: The lane, if the cause is specific to it.
        about: Whether the count is an estimate from a sample.
        keys: For a keyed gate, the number of its instances found to hold jobs.
        sentence: The store's explanation why that job does not run.
        oldest_at: When the oldest of them was due, ms UTC.
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
    """All causes for which jobs are held up.

    Attributes:
        causes: In descending order of the number of jobs.
        waiting: Number of jobs that are due and have not started.
        more_lanes: Number of lanes with such jobs that were not examined.
    """

    causes: tuple[Cause, ...]
    waiting: int
    more_lanes: int


@dataclass(frozen=True, slots=True)
class _Batch:
    """Jobs that wait together.

    Attributes:
        alike: Equal for batches that most likely have the same cause.
        first: Id of the job whose cause is read.
        parked_at: The gate at which they are parked.
    """

    alike: object
    count: int
    first: str
    parked_at: str | None = None

    @property
    def cut(self) -> bool:
        """Whether there may be more than were counted."""
        return self.parked_at is not None or self.count >= COUNTED


@dataclass(frozen=True, slots=True)
class _Why:
    """Why one job is held up.

    Attributes:
        key: Equal for jobs of the same group.
        is_keyed: Whether an instance of a keyed gate holds it.
        due_at: ms UTC.
    """

    key: tuple[str, str]
    cause: Cause
    is_keyed: bool
    due_at: int


@dataclass(slots=True)
class _CauseGroup:
    cause: Cause
    lanes: set[str] = field(default_factory=set[str])
    keys: set[str] = field(default_factory=set[str])
    count: float = 0
    about: bool = False
    oldest_at: int | None = None

    def note_due(self, at: int | None) -> None:
        if at is not None and (self.oldest_at is None or at < self.oldest_at):
            self.oldest_at = at

    def total(self) -> Cause:
        return replace(
            self.cause,
            count=max(1, round(self.count)),
            about=self.about,
            lanes=tuple(sorted(self.lanes)),
            keys=len(self.keys),
            oldest_at=self.oldest_at,
        )


async def find_stuck(store: Store, seen: Overview) -> Stuck:
    """Return the causes of all held-up jobs."""
    held = sorted((one for one in seen.lanes if held_up_in(one)), key=held_up_in, reverse=True)
    causes = _Causes(store, seen.stats.now)
    (everything,) = (await store.read(GatesQuery(names=("all",)))).rows
    parked, templates = Flows(), dict[str, str | None]()
    if any(lane.counts.get(State.PARKED) for lane in held[:LANES]):
        gates = await parked_gates(store)
        templates = {gate.name: gate.template for gate in gates.rows}
        parked = await parked_flows(store, gates.rows, first=PARKED)
        parked = replace(parked, more=parked.more or gates.cursor is not None)
    for lane in held[:LANES]:
        if everything.closed_until is not None:
            closed = Cause(kind="closed", gate=everything)
            causes.add(("closed", "all"), closed, lane, held_up_in(lane))
            continue
        if lane.paused:
            gates = GatesQuery(names=(f"lane:{lane.name}",))
            (gate,) = (await store.read(gates)).rows
            paused = Cause(kind="paused", lane=lane.name, gate=gate)
            causes.add(("paused", lane.name), paused, lane, held_up_in(lane))
            continue
        batches = [
            _Batch((templates[gate], one.unfit), one.count, one.first[0], gate)
            for one in parked.rows
            if one.lane == lane.name and one.first and (gate := one.parked_at)
        ]
        await causes.add_waiting(lane)
        await causes.add_parked(lane, batches, more=parked.more)
    return Stuck(
        causes=causes.largest_first(),
        waiting=sum(map(held_up_in, seen.lanes)),
        more_lanes=max(0, len(held) - LANES),
    )


async def stuck_among(store: Store, jobs: Sequence[JobView], now: int) -> Stuck:
    """Return the causes of the given jobs, for a caller that sees only its own."""
    causes = _Causes(store, now)
    await causes.add_batches(_batches(jobs), len(jobs))
    return Stuck(causes=causes.largest_first(), waiting=len(jobs), more_lanes=0)


class _Causes:
    """Held-up jobs, grouped by cause."""

    def __init__(self, store: Store, now: int) -> None:
        self._store = store
        self._now = now
        self._groups: dict[tuple[str, str], _CauseGroup] = {}

    def largest_first(self) -> tuple[Cause, ...]:
        causes = (group.total() for group in self._groups.values())
        return tuple(sorted(causes, key=lambda one: -one.count))

    def add(
        self, key: tuple[str, str], cause: Cause, lane: LaneView | None, count: float
    ) -> _CauseGroup:
        group = self._groups.setdefault(key, _CauseGroup(cause))
        group.lanes.add(cause.lane if lane is None else lane.name)
        group.count += count
        if lane is not None and cause.kind in {"closed", "paused", "unknown"}:
            group.note_due(lane.oldest_due_at)
        return group

    async def add_waiting(self, lane: LaneView) -> None:
        """Add the waiting jobs of a lane."""
        if count := lane.counts.get(State.WAITING, 0):
            flows = await waiting_flows(self._store, (lane.name,))
            batches = [
                _Batch(tuple(gate.name for gate in one.shared), one.count, one.first[0])
                for one in flows.rows
                if one.first
            ]
            await self.add_batches(batches, count, lane=lane, more=flows.more)

    async def add_parked(self, lane: LaneView, batches: list[_Batch], *, more: bool) -> None:
        """Add the parked jobs of a lane.

        Args:
            more: Whether there may be batches of the lane that were not found.
        """
        count = lane.counts.get(State.PARKED, 0)
        if not count:
            return
        if not batches and more:
            # Their gates are beyond those that were read.
            query = JobsQuery(lane=lane.name, states=(State.PARKED,), limit=PARKED)
            batches = _batches(await oldest_or_newest_jobs(self._store, query))
        await self.add_batches(batches, count, lane=lane, more=more)
        if not batches and more:
            unknown = Cause(kind="unknown", lane=lane.name)
            self.add(("unknown", lane.name), unknown, lane, count)

    async def add_batches(
        self,
        batches: Sequence[_Batch],
        count: float,
        *,
        lane: LaneView | None = None,
        more: bool = False,
    ) -> None:
        """Add jobs: each batch to the cause of its first job.

        Args:
            lane: The jobs' lane, if they are all in one.
            more: Whether there may be jobs in other batches.
        """
        asked = _batches_to_read(batches)
        found = await self._read(asked[:ALIKE])
        keys = {one and one.key for one in found}
        if len(keys) > 1 or None in keys or len({one.alike for one in batches}) > 1:
            found += await self._read(asked[ALIKE:])
        asked = asked[: len(found)]
        met: dict[tuple[str, str], _CauseGroup] = {}
        for one, part, why in zip(asked, _divide(count, batches, asked), found, strict=True):
            if why is None:
                continue
            group = met[why.key] = self.add(why.key, why.cause, lane, part)
            if why.is_keyed:
                alike = (other for other in batches if other.alike == one.alike)
                group.keys.update(other.parked_at for other in alike if other.parked_at)
            group.note_due(why.due_at)
        cut = len(met) > 1 and any(one.cut for one in batches)
        for group in met.values():
            # If all jobs that were read have the same cause, its count is the lane's.
            group.about |= more or len(batches) > len(asked) or cut

    async def _read(self, batches: Sequence[_Batch]) -> list[_Why | None]:
        """Return why the first job of each batch does not run; None if it is not held up."""
        ids = tuple(one.first for one in batches)
        if not ids:
            return []
        jobs = {one.id: one for one in (await self._store.read(JobsQuery(ids=ids))).rows}
        whys = [await self._store.read(WhyQuery(id=one)) for one in ids]
        return [_why(jobs.get(one), why, self._now) for one, why in zip(ids, whys, strict=True)]


def held_up_in(lane: LaneView) -> int:
    """Return the number of jobs of a lane that are due and have not started."""
    return lane.counts.get(State.WAITING, 0) + lane.counts.get(State.PARKED, 0)


def _batches(jobs: Iterable[JobView]) -> list[_Batch]:
    found: dict[tuple[object, ...], list[JobView]] = {}
    for job in jobs:
        shared = tuple(one.name for one in job.gates if one.shared)
        use = next((one for one in job.gates if one.name == job.parked_at), None)
        key = (job.lane, job.tenant, job.kind, shared, use and use.template, job.parked_at)
        found.setdefault(key, []).append(job)
    return [
        _Batch(key[:-1], len(some), some[0].id, some[0].parked_at) for key, some in found.items()
    ]


def _divide(count: float, batches: Sequence[_Batch], asked: Sequence[_Batch]) -> list[float]:
    """Divide a number of jobs among the batches that were read, which stand for those alike."""
    totals, asked_totals = Counter[object](), Counter[object]()
    for one in batches:
        totals[one.alike] += one.count
    for one in asked:
        asked_totals[one.alike] += one.count
    whole = sum(totals[alike] for alike in asked_totals)
    return [
        count * one.count * totals[one.alike] / asked_totals[one.alike] / whole for one in asked
    ]


def _why(job: JobView | None, why: WhyView | None, now: int) -> _Why | None:
    if why is None or job is None or why.state not in {State.WAITING, State.PARKED}:
        return None
    kind, gate = _kind(why.never_fits, why.closed, workers=why.workers)
    if kind == "busy" and now - job.due_at < READY_MS:
        return None
    keyed = gate is not None and not gate.shared and gate.template is not None
    named = job.lane if gate is None else gate.template if keyed else gate.name
    cause = Cause(kind=kind, gate=gate, lane=job.lane, job=job.id, sentence=why.sentence)
    return _Why((kind, named or ""), cause, keyed, job.due_at)


def _batches_to_read(batches: Sequence[_Batch]) -> list[_Batch]:
    """Return the batches whose cause is read: the largest of each kind, then the largest others."""
    order = sorted(batches, key=lambda one: -one.count)
    firsts: dict[object, _Batch] = {}
    for one in order:
        firsts.setdefault(one.alike, one)
    rest = [one for one in order if firsts[one.alike] is not one]
    return [*firsts.values(), *rest][:FLOWS]


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
        # The gate that opens last, or at no known time, is the one that holds the job.
        gate = max(shut, key=lambda one: one.opens_at if one.opens_at is not None else 1 << 62)
        return ("full" if gate.traits.counts else "hours"), gate
    return ("busy" if workers else "no_worker"), None


def by_lane(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    """Return the sum of several lanes' counts by state."""
    found: Counter[str] = Counter()
    for one in counts:
        found.update(one)
    return found
