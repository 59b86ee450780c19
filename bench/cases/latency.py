"""Latency from the return of `send` to the start of the handler, at 50 jobs per second."""

from __future__ import annotations

from bench.bench import Bench
from bench.child import ChildFailed
from bench.notebook import percentile
from bench.places.place import Place
from bench.systems.system import System
from bench.tally import compare
from bench.working import crew

P50 = "p50 at 50 jobs/s"
P99 = "p99 at 50 jobs/s"
EVERY_NS = 20_000_000
FIRST = 50
"""Jobs of the first second, not counted because a worker has to prepare its statements."""


def at_fifty(bench: Bench) -> None:
    count = bench.scale.latency
    waits: dict[str, list[list[float]]] = {}
    failed: set[str] = set()
    for repeat in range(bench.scale.repeats):
        for system in bench.systems:
            if system.name in failed:
                continue
            bench.doing(f"{system.name}, {repeat + 1} of {bench.scale.repeats}")
            try:
                with bench.fresh() as place:
                    each = _waits(bench, system, place, count)
                waits.setdefault(system.name, []).append(each)
            except ChildFailed as failure:
                failed.add(system.name)
                bench.fault(system.name, f"failed: {failure}")
    for case, share in ((P50, 0.5), (P99, 0.99)):
        for name, each in waits.items():
            values = [percentile(one, share) for one in each]
            bench.show(bench.notebook.add(case, name, "ms", values), prefix=f"{case}: ")


def _waits(bench: Bench, system: System, place: Place, count: int) -> list[float]:
    with (
        bench.producing(system, place) as producer,
        crew(system, place, clock="monotonic") as running,
    ):
        # The worker may still be starting when the first job is sent.
        producer.ask(("warm",))
        running.wait_for(1)
        sent = producer.ask(("pace", FIRST + count, EVERY_NS))
        running.wait_for(1 + FIRST + count)
        started = [(number, at) for one in running.end() for number, at in one.seen]
    numbers = (number for number, _ in started)
    bench.delivered(system.name, "50 a second", *compare(numbers, FIRST + count))
    # A handler may start before `send` has returned: the latency is then negative.
    return [(at - sent[number]) / 1e6 for number, at in started if number >= FIRST]
