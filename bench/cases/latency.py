"""From the return of `send` to the start of the handler, at 50 jobs a second, idle otherwise."""

from __future__ import annotations

import time
from pathlib import Path
from types import ModuleType

from bench.bench import Bench
from bench.notebook import percentile
from bench.systems import with_headway, with_huey, with_litequeue
from bench.tally import compare

P50 = "p50 at 50 jobs/s"
P99 = "p99 at 50 jobs/s"
EVERY_NS = 20_000_000
SYSTEMS = (with_headway, with_litequeue, with_huey)


def at_fifty(bench: Bench) -> None:
    count = bench.scale.latency
    halves: dict[str, list[float]] = {one.NAME: [] for one in SYSTEMS}
    ends: dict[str, list[float]] = {one.NAME: [] for one in SYSTEMS}
    for repeat in range(bench.scale.repeats):
        for system in SYSTEMS:
            bench.doing(f"{system.NAME}, {repeat + 1} of {bench.scale.repeats}")
            with bench.fresh() as folder:
                waits = _waits(bench, system, folder, count)
            halves[system.NAME].append(percentile(waits, 0.5))
            ends[system.NAME].append(percentile(waits, 0.99))
    for case, values in ((P50, halves), (P99, ends)):
        for name, each in values.items():
            bench.show(bench.notebook.add(case, name, "ms", each), prefix=f"{case}: ")
    for case in (P50, P99):
        ours = bench.notebook.find(case, "headway")
        peer = bench.notebook.find(case, "litequeue")
        if ours and peer:
            bench.goal(f"latency {case} against litequeue", ours.median / peer.median, most=1)


def _waits(bench: Bench, system: ModuleType, folder: Path, count: int) -> list[float]:
    sent: dict[int, int] = {}
    with system.worker(folder, count) as worker, system.sender(folder) as send:
        begin = time.monotonic_ns()
        for number in range(count):
            time.sleep(max(0.0, (begin + number * EVERY_NS - time.monotonic_ns()) / 1e9))
            sent[number] = send(number)
        started: list[tuple[int, int]] = worker.receive()
    bench.delivered(system.NAME, "50 a second", *compare((n for n, _ in started), count))
    # A handler may start before `send` has returned: the wait is then below nought.
    return [(at - sent[number]) / 1e6 for number, at in started]
