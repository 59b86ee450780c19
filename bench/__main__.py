"""`python -m bench`: what the engine does on SQLite with synchronous=FULL, and beside whom."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from bench import chart, report
from bench.bench import Bench
from bench.cases import draining, dueing, enqueueing, holding, idling, latency, sizing
from bench.machine import facts
from bench.scale import DEFAULT, FULL, QUICK
from bench.systems import with_headway, with_huey, with_litequeue

WARM = 500
CASES: dict[str, tuple[str, Callable[[Bench], None]]] = {
    "one": (enqueueing.ONE, enqueueing.one_by_one),
    "bulk": (enqueueing.BULK, enqueueing.in_bulk),
    "claims": (draining.CLAIMS, draining.raw_claims),
    "drain": (draining.DRAIN, draining.against_peers),
    "deep": (draining.DEEP, draining.by_depth),
    "gated": (draining.GATED, draining.with_gates),
    "latency": ("latency at 50 jobs a second", latency.at_fifty),
    "burst": ("burst at one moment", dueing.burst),
    "paced": (dueing.PACED, dueing.paced),
    "held": (holding.HELD, holding.by_held),
    "parked": (holding.PARKED, holding.by_parked),
    "idle": (idling.IDLE, idling.waiting),
    "size": (sizing.SIZE, sizing.scheduled),
}


def main() -> int:
    wanted = _arguments()
    folder = Path(tempfile.mkdtemp(prefix="headway-bench-", dir=wanted.dir))
    scale = QUICK if wanted.quick else FULL if wanted.full else DEFAULT
    bench = Bench(scale, folder, Console())
    about = facts(folder)
    for name, fact in about.items():
        bench.say(f"{name}: {fact}")
    begin = time.monotonic()
    try:
        warm_up(bench)
        for number, name in enumerate(wanted.only or CASES, 1):
            title, measure = CASES[name]
            total = len(wanted.only or CASES)
            bench.say(f"\n[{number} of {total}] {title}", "bold")
            measure(bench)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _sum_up(bench, time.monotonic() - begin)
    if wanted.json:
        result = {"about": about, **bench.notebook.as_json()}
        wanted.json.write_text(json.dumps(result, indent=1) + "\n")
    if wanted.page:
        report.put_into(wanted.page, about, bench.notebook)
    if wanted.chart:
        chart.draw(bench.notebook, wanted.chart)
    return 1 if bench.notebook.faults else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="less of everything, under two minutes")
    size.add_argument("--full", action="store_true", help="more repeats, and a drain of a million")
    parser.add_argument(
        "--only", action="append", choices=CASES, metavar="NAME", help=f"of {', '.join(CASES)}"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="draw them, as PNG or SVG")
    parser.add_argument("--page", type=Path, metavar="FILE", help="put them as tables into it")
    parser.add_argument("--dir", type=Path, help="where the databases lie; a real disk")
    return parser.parse_args()


def warm_up(bench: Bench) -> None:
    """The first to write would else pay for a cold machine."""
    with bench.fresh() as folder:
        with_headway.drain(folder, WARM)
        with_huey.enqueue_one(folder, WARM)
        with_litequeue.enqueue_one(folder, WARM)


def _sum_up(bench: Bench, seconds: float) -> None:
    notebook = bench.notebook
    met = sum(goal.met for goal in notebook.goals)
    bench.say(f"\n{met} of {len(notebook.goals)} goals met in {seconds:.0f} s", "bold")
    for goal in notebook.goals:
        if not goal.met:
            bench.say(f"  {goal}", "bold red")
    for remark in notebook.remarks:
        bench.say(f"  of a peer: {remark}")
    for fault in notebook.faults:
        bench.say(f"  FAULT {fault}", "bold red")
    if not notebook.faults:
        bench.say("every job of this engine was done exactly once, and none started early")


if __name__ == "__main__":
    sys.exit(main())
