"""Reports: the numbers of a simulated scenario."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headway.contract.views import JobView
from headway.core.instant import format_instant
from headway.lab.gate_use import Curve, GateUsage, UsageMeter
from headway.lab.history import History
from headway.lab.invariants import FINAL, Violation
from headway.lab.scenario import Scenario

_HOUR_MS = 3_600_000


@dataclass(frozen=True, kw_only=True, slots=True)
class KindCounts:
    """The number of jobs of one kind, by their ends.

    Attributes:
        outcomes: number of attempts by outcome, as named in the scenario.
    """

    kind: str
    jobs: int
    succeeded: int
    dead: int
    cancelled: int
    unfinished: int
    runs: int
    outcomes: Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Percentiles:
    """The number of waits, and their percentiles and maximum in ms."""

    count: int
    p50: int
    p90: int
    p99: int
    most: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Waits:
    """How long the runs of one kind waited from due to start.

    Attributes:
        eligible: the part in which every gate was open.
        behind: the rest, spent behind gates.
    """

    kind: str
    total: Percentiles
    eligible: Percentiles
    behind: Percentiles


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitShape:
    """The distribution of the waits of one kind, for a plot.

    Attributes:
        total: percentiles of the wait in ms, from 0 to 100 in steps of a half; empty without
            starts.
        behind: the same for the part spent behind gates.
    """

    kind: str
    total: tuple[int, ...]
    behind: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneStarts:
    """The number of starts in one lane: total, average per hour, and in the busiest hour."""

    lane: str
    starts: int
    mean_per_hour: float
    most_per_hour: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """The numbers of one simulated scenario.

    Attributes:
        name: name of the scenario or what-if.
        seed: seed of all random values.
        start_at: ms UTC.
        end_at: ms UTC.
        start: `start_at` as text, in the scenario's time zone.
        end: `end_at` as text, in the scenario's time zone.
        last_final_at: when the last job became final; None if none did.
        kinds: sorted by name.
        waits: sorted by kind.
        lanes: sorted by name.
        gates: in the order of the scenario.
        refused: unusable rows of files, and jobs that a lane's max_backlog refused.
        violations: broken promises; empty unless there is a bug.
    """

    name: str
    seed: int
    start_at: int
    end_at: int
    start: str
    end: str
    tz: str
    jobs: int
    unfinished: int
    last_final_at: int | None
    kinds: tuple[KindCounts, ...]
    waits: tuple[Waits, ...]
    lanes: tuple[LaneStarts, ...]
    gates: tuple[GateUsage, ...]
    refused: tuple[str, ...]
    violations: tuple[Violation, ...]
    curves: tuple[Curve, ...]
    shapes: tuple[WaitShape, ...]


def report(
    scenario: Scenario,
    history: History,
    outcomes: Mapping[tuple[str, str], int],
    violations: Sequence[Violation],
) -> Report:
    """Build the report of a history.

    Args:
        outcomes: number of attempts by (kind, outcome).
    """
    meter = UsageMeter(history, scenario)
    ends = [job.finished_at for job in history.jobs if job.finished_at is not None]
    by_kind: defaultdict[str, list[JobView]] = defaultdict(list)
    for job in history.jobs:
        by_kind[job.kind].append(job)
    kinds = dict(sorted(by_kind.items()))
    return Report(
        name=scenario.name,
        seed=scenario.seed,
        start_at=history.start_at,
        end_at=history.end_at,
        start=format_instant(history.start_at, scenario.tz),
        end=format_instant(history.end_at, scenario.tz),
        tz=scenario.tz,
        jobs=len(history.jobs),
        unfinished=sum(job.state not in FINAL for job in history.jobs),
        last_final_at=max(ends, default=None),
        kinds=tuple(_counts(kind, jobs, outcomes) for kind, jobs in kinds.items()),
        waits=tuple(_waits(kind, jobs) for kind, jobs in kinds.items()),
        lanes=_lanes(history),
        gates=tuple(meter.uses()),
        refused=tuple(history.refused),
        violations=tuple(violations),
        curves=tuple(meter.curves()),
        shapes=tuple(_shape(kind, jobs) for kind, jobs in kinds.items()),
    )


def percentiles(values: list[int]) -> Percentiles:
    """Return the nearest-rank percentiles of some durations; all 0 if there are none."""
    ranks = _ranks(values) or (0,) * 201
    p50, p90, p99, most = (ranks[2 * share] for share in (50, 90, 99, 100))
    return Percentiles(count=len(values), p50=p50, p90=p90, p99=p99, most=most)


def _counts(kind: str, jobs: list[JobView], outcomes: Mapping[tuple[str, str], int]) -> KindCounts:
    states = Counter(str(job.state) for job in jobs)
    return KindCounts(
        kind=kind,
        jobs=len(jobs),
        succeeded=states["succeeded"],
        dead=states["dead"],
        cancelled=states["cancelled"],
        unfinished=sum(count for state, count in states.items() if state not in FINAL),
        runs=sum(len(job.runs) for job in jobs),
        outcomes={name: n for (of, name), n in sorted(outcomes.items()) if of == kind},
    )


def _waits(kind: str, jobs: list[JobView]) -> Waits:
    runs = [run for job in jobs for run in job.runs]
    return Waits(
        kind=kind,
        total=percentiles([run.claimed_at - run.due_at for run in runs]),
        eligible=percentiles([run.claimed_at - run.due_at - run.blocked_ms for run in runs]),
        behind=percentiles([run.blocked_ms for run in runs]),
    )


def _shape(kind: str, jobs: list[JobView]) -> WaitShape:
    runs = [run for job in jobs for run in job.runs]
    return WaitShape(
        kind=kind,
        total=_ranks([run.claimed_at - run.due_at for run in runs]),
        behind=_ranks([run.blocked_ms for run in runs]),
    )


def _ranks(values: list[int]) -> tuple[int, ...]:
    """Return the nearest-rank percentiles from 0 to 100 in steps of a half."""
    ranked = sorted(values)
    if not ranked:
        return ()
    return tuple(ranked[max(0, -(-len(ranked) * half // 200) - 1)] for half in range(201))


def _lanes(history: History) -> tuple[LaneStarts, ...]:
    hours: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for job, run in history.runs():
        hours[job.lane][(run.claimed_at - history.start_at) // _HOUR_MS] += 1
    span = max(history.end_at - history.start_at, 1) / _HOUR_MS
    return tuple(
        LaneStarts(
            lane=lane,
            starts=starts.total(),
            mean_per_hour=starts.total() / span,
            most_per_hour=max(starts.values()),
        )
        for lane, starts in sorted(hours.items())
    )
