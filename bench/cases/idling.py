"""The CPU time of fifty workers that wait for jobs."""

from __future__ import annotations

import time
from contextlib import ExitStack

import psutil

from bench.bench import Bench
from bench.child import child
from bench.systems import with_headway
from bench.working import drain

IDLE = "50 waiting workers"
PROCESSES = 5
EACH = 10
REST_S = 2.0
"""Seconds for the processes to become idle after they have started."""


def waiting(bench: Bench) -> None:
    with bench.fresh() as place, ExitStack() as stack:
        bench.enqueue(bench.engine, place, "many", 1)
        drain(bench.engine, place, 1)
        children = [
            stack.enter_context(child(with_headway.idle, place.url, EACH)) for _ in range(PROCESSES)
        ]
        for one in children:
            one.receive()
        time.sleep(REST_S)
        shares: list[float] = []
        for repeat in range(bench.scale.repeats):
            bench.doing(f"watching, {repeat + 1} of {bench.scale.repeats}")
            before, begin = _cpu([one.pid for one in children]), time.monotonic()
            time.sleep(bench.scale.idle_s)
            used = _cpu([one.pid for one in children]) - before
            shares.append(100 * used / (time.monotonic() - begin))
        for one in children:
            one.send("end")
    note = f"{PROCESSES} processes of {EACH}"
    figure = bench.add(IDLE, "headway", "% of a core", shares, note)
    bench.goal("50 idle workers, % of a core", figure.median, most=1)


def _cpu(pids: list[int]) -> float:
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    return sum(one.user + one.system for one in times)
