"""Jobs that fall due: all at once, and a thousand per second. No job may start early."""

from __future__ import annotations

import time

from bench.bench import Bench
from bench.child import Child, ChildFailed
from bench.notebook import HEADWAY, percentile
from bench.places.place import Place
from bench.systems.system import System
from bench.tally import WARM, compare
from bench.working import crew

BURST = "burst at one moment: all started"
BURST_MEDIAN = "burst at one moment: median lateness"
PACED = "1,000 due a second"
AHEAD_MS = 1_500
SETTLE_S = 0.3
"""Seconds in which a worker must become idle before the jobs are due."""


def burst(bench: Bench) -> None:
    late: dict[str, list[list[float]]] = {}
    failed: set[str] = set()
    count = bench.scale.burst
    systems = [system for system in bench.systems if system.bursts]
    for repeat in range(bench.scale.repeats):
        for system in systems:
            if system.name in failed:
                continue
            bench.doing(f"{system.name}, {repeat + 1} of {bench.scale.repeats}")
            try:
                with bench.fresh() as place:
                    each = _burst(bench, system, place)
                late.setdefault(system.name, []).append(each)
            except ChildFailed as failure:
                failed.add(system.name)
                bench.fault(system.name, f"failed: {failure}")
    for case, measure in ((BURST_MEDIAN, _median), (BURST, max)):
        for name, each in late.items():
            values = [measure(one) for one in each if one]
            if not values:
                continue
            note = f"{len(each[0]):,} jobs"
            figure = bench.notebook.add(case, name, "s", values, note)
            bench.show(figure, prefix=f"{case.partition(': ')[2]}: ")
    ours = bench.notebook.find(BURST, HEADWAY)
    if ours and bench.ground.store == "sqlite":
        bench.goal(f"burst of {count:,}, all started, s", ours.median, most=0.3)


def paced(bench: Bench) -> None:
    count = bench.scale.paced
    late: list[list[float]] = []
    for repeat in range(bench.scale.repeats):
        bench.doing(f"headway, {repeat + 1} of {bench.scale.repeats}")
        with (
            bench.fresh() as place,
            bench.producing(bench.engine, place) as producer,
            crew(bench.engine, place, clock="wall") as running,
        ):
            producer.ask(("warm",))
            running.wait_for(1)
            due_at = _whole_second(AHEAD_MS + count // 10)
            producer.ask(("spread", count, due_at, 1))
            _await_moment(bench, bench.engine, due_at)
            running.wait_for(1 + count)
            started = [pair for one in running.end() for pair in one.seen]
        late.append(_lateness(bench, HEADWAY, started, count, due_at, step_ms=1))
    bench.add(PACED, "headway, p50", "ms", [percentile(one, 0.5) * 1e3 for one in late])
    last = bench.add(PACED, "headway, p99", "ms", [percentile(one, 0.99) * 1e3 for one in late])
    most = 5 if bench.ground.store == "redis" else 10
    bench.goal("lateness at 1,000 due a second, p99, ms", last.median, most=most)


def _burst(bench: Bench, system: System, place: Place) -> list[float]:
    scale = bench.scale
    count = scale.burst_slow if system.slow else scale.burst
    with bench.producing(system, place) as producer:
        # Enqueuing is not measured here, but must be finished when the jobs are due.
        ahead_ms = AHEAD_MS + _guess_ms(producer, count)
        with crew(system, place, clock="wall") as running:
            producer.ask(("warm",))
            running.wait_for(1)
            warm = running.board.total()
            due_at = _whole_second(ahead_ms)
            producer.ask(("later", count, due_at))
            _await_moment(bench, system, due_at)
            running.wait_for(warm + count)
            started = [pair for one in running.end() for pair in one.seen]
    return _lateness(bench, system.name, started, count, due_at)


def _guess_ms(producer: Child, count: int) -> int:
    """Estimate how long it takes to enqueue `count` scheduled jobs, from a few due far ahead."""
    probes = 50
    begin = time.perf_counter()
    producer.ask(("later", probes, _whole_second(86_400_000)))
    return int(2_000 * (time.perf_counter() - begin) / probes * count)


def _await_moment(bench: Bench, system: System, due_at: int) -> None:
    spare = due_at / 1e3 - time.time()
    time.sleep(max(0.0, spare))
    if spare < SETTLE_S:
        bench.fault(system.name, f"burst: all was enqueued only {spare:.1f} s before the moment")


def _lateness(
    bench: Bench,
    name: str,
    started: list[tuple[int, int]],
    count: int,
    due_at: int,
    step_ms: int = 0,
) -> list[float]:
    bench.delivered(name, "due at a moment", *compare((n for n, _ in started), count))
    lateness = [
        at / 1e9 - (due_at + number * step_ms) / 1e3 for number, at in started if number != WARM
    ]
    early = sum(late < 0 for late in lateness)
    if early:
        bench.fault(
            name, f"{early} of {count:,} jobs started early, by up to {-min(lateness):.3f} s"
        )
    return lateness


def _median(values: list[float]) -> float:
    return percentile(values, 0.5)


def _whole_second(ahead_ms: int) -> int:
    """Return a time in the future, ms UTC, rounded up to a second, as some queues truncate it."""
    return -(-(time.time_ns() // 1_000_000 + ahead_ms) // 1_000) * 1_000
