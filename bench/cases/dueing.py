"""Jobs that fall due: all at one moment, and a thousand a second. Nothing may start early."""

from __future__ import annotations

import time
from pathlib import Path

from bench.bench import Bench
from bench.notebook import HEADWAY, percentile
from bench.systems import with_headway, with_huey
from bench.tally import compare

BURST = "burst at one moment: all started"
BURST_MEDIAN = "burst at one moment: median lateness"
PACED = "1,000 due a second"
AHEAD_MS = 1_500
SETTLE_S = 0.5
"""A worker is given so long to fall idle before the moment comes."""


def burst(bench: Bench) -> None:
    count = bench.scale.burst
    note = f"{count:,} jobs"
    medians: dict[str, list[float]] = {"headway": [], "huey": []}
    alls: dict[str, list[float]] = {"headway": [], "huey": []}
    for repeat in range(bench.scale.repeats):
        for name, late in (("headway", _headway_burst), ("huey", _huey_burst)):
            bench.doing(f"{name}, {repeat + 1} of {bench.scale.repeats}")
            with bench.fresh() as folder:
                lateness = late(bench, folder, count)
            medians[name].append(percentile(lateness, 0.5))
            alls[name].append(max(lateness))
    for case, each in ((BURST_MEDIAN, medians), (BURST, alls)):
        for name, values in each.items():
            figure = bench.notebook.add(case, name, "s", values, note)
            bench.show(figure, prefix=f"{case.partition(': ')[2]}: ")
    ours = bench.notebook.find(BURST, "headway")
    if ours:
        bench.goal(f"burst of {count:,}, all started, s", ours.median, most=0.3)


def paced(bench: Bench) -> None:
    count = bench.scale.paced
    halves: list[float] = []
    ends: list[float] = []
    for repeat in range(bench.scale.repeats):
        bench.doing(f"headway, {repeat + 1} of {bench.scale.repeats}")
        with bench.fresh() as folder:
            due_at = _soon(count)
            with_headway.schedule(folder, count, due_at, step_ms=1)
            lateness = _watch(bench, folder, count, due_at, step_ms=1)
        halves.append(percentile(lateness, 0.5) * 1e3)
        ends.append(percentile(lateness, 0.99) * 1e3)
    bench.add(PACED, "headway, p50", "ms", halves)
    late = bench.add(PACED, "headway, p99", "ms", ends)
    bench.goal("lateness at 1,000 due a second, p99, ms", late.median, most=10)


def _headway_burst(bench: Bench, folder: Path, count: int) -> list[float]:
    due_at = _soon(count)
    with_headway.schedule(folder, count, due_at)
    return _watch(bench, folder, count, due_at)


def _huey_burst(bench: Bench, folder: Path, count: int) -> list[float]:
    # huey enqueues one by one, so that it needs longer to have all of them ready.
    due_at = _soon(8 * count)
    with_huey.schedule(folder, count, due_at)
    with with_huey.worker(folder, count, wall=True) as worker:
        return _lateness(bench, "huey", worker.receive(), count, due_at)


def _watch(bench: Bench, folder: Path, count: int, due_at: int, step_ms: int = 0) -> list[float]:
    with with_headway.worker(folder, count, wall=True) as worker:
        spare = due_at / 1e3 - time.time()
        if spare < SETTLE_S:
            bench.fault(HEADWAY, f"burst: its worker was ready only {spare:.1f} s before it")
        return _lateness(bench, HEADWAY, worker.receive(), count, due_at, step_ms)


def _lateness(
    bench: Bench,
    name: str,
    started: list[tuple[int, int]],
    count: int,
    due_at: int,
    step_ms: int = 0,
) -> list[float]:
    bench.delivered(name, "due at a moment", *compare((n for n, _ in started), count))
    lateness = [at / 1e9 - (due_at + number * step_ms) / 1e3 for number, at in started]
    early = sum(late < 0 for late in lateness)
    if early:
        bench.fault(name, f"{early} of {count:,} jobs started early")
    return lateness


def _soon(count: int) -> int:
    """A moment far enough off that all are enqueued and the worker is idle, in ms UTC.

    A whole second, because huey forgets what is smaller.
    """
    return -(-(time.time_ns() // 1_000_000 + AHEAD_MS + count // 10) // 1_000) * 1_000
