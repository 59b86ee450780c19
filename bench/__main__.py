"""`python -m bench`: measure the engine on each store, and compare it with other queues."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import chart, goals, report
from bench.bench import Bench
from bench.cases import (
    draining,
    dueing,
    enqueueing,
    holding,
    idling,
    latency,
    outside,
    over_http,
    sizing,
)
from bench.machine import facts
from bench.places import postgres, redis, sqlite
from bench.places.place import Ground, NoGround, at_distance
from bench.scale import DEFAULT, FULL, QUICK, Scale
from bench.systems import registry

WARM = 500
ALL = ("sqlite", "postgres", "redis", "redis-everysec")
CASES: dict[str, tuple[str, tuple[str, ...], Callable[[Bench], None]]] = {
    "one": (enqueueing.ONE, ALL, enqueueing.one_by_one),
    "bulk": (enqueueing.BULK, ALL, enqueueing.in_bulk),
    "claims": (draining.CLAIMS, ("sqlite",), draining.raw_claims),
    "drain": (draining.DRAIN, ALL, draining.against_peers),
    "two": (draining.PAIR, ALL[:3], draining.by_two),
    "shared": (draining.SHARED, ALL[:3], draining.waiting_handlers),
    "locks": (draining.LOCKED, ALL[:3], draining.at_locks),
    "signals": (outside.SIGNALS, ALL[:3], outside.handed_and_signalled),
    "deep": (draining.DEEP, ALL[:3], draining.by_depth),
    "gated": (draining.GATED, ALL[:3], draining.with_gates),
    "latency": ("latency at 50 jobs a second", ALL[:3], latency.at_fifty),
    "burst": ("burst at one moment", ALL[:3], dueing.burst),
    "paced": (dueing.PACED, ALL[:3], dueing.paced),
    "held": (holding.HELD, ALL[:3], holding.by_held),
    "parked": (holding.PARKED, ALL[:3], holding.by_parked),
    "idle": (idling.IDLE, ALL[:3], idling.waiting),
    "size": (sizing.SIZE, ALL[:3], sizing.scheduled),
    "http": ("over HTTP", ALL[:3], over_http.over_http),
}
GROUNDS: dict[str, Callable[[], AbstractContextManager[Ground]]] = {
    "sqlite": sqlite.opened,
    "postgres": postgres.opened,
    "redis": redis.opened,
    "redis-everysec": redis.opened_with_log,
}
REMOTE = ("postgres", "redis")
"""Stores that can be measured with a network delay."""
AOF_PEERS = ("huey", "bullmq", "saq", "celery", "dramatiq")
"""Peers that are also measured with an append-only file: enough to see what it costs."""


def main() -> int:
    wanted = _arguments()
    if wanted.read:
        result = json.loads(wanted.read.read_text())
    else:
        result = _measure(wanted)
        if wanted.json:
            wanted.json.write_text(json.dumps(result, indent=1) + "\n")
    if wanted.page:
        report.put_into(wanted.page, result)
    if wanted.chart:
        chart.draw(result, wanted.chart)
    return 1 if any(store["faults"] for store in result["stores"]) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="smaller counts; takes a few minutes")
    size.add_argument("--full", action="store_true", help="more repeats, and queues of a million")
    parser.add_argument("--store", action="append", choices=GROUNDS, help="only this; repeatable")
    parser.add_argument(
        "--cases", action="append", metavar="NAMES", help=f"only these: {', '.join(CASES)}"
    )
    parser.add_argument(
        "--peers",
        action="append",
        metavar="NAMES",
        help=f"compare only with these, or `none`: {', '.join(registry.names())}",
    )
    parser.add_argument(
        "--rtt",
        action="append",
        metavar="MS",
        help="also with these round-trip times, such as 1,5; PostgreSQL and Redis",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="draw charts, as PNG or SVG")
    parser.add_argument("--page", type=Path, metavar="FILE", help="insert tables into this page")
    parser.add_argument(
        "--read", type=Path, metavar="FILE", help="measure nothing; read the output of --json"
    )
    parser.add_argument("--dir", type=Path, help="folder for the databases, on a real disk")
    wanted = parser.parse_args()
    wanted.cases = _names(parser, wanted.cases, list(CASES))
    wanted.peers = _names(parser, wanted.peers, registry.names())
    wanted.rtt = _delays(parser, wanted.rtt or [])
    return wanted


def _names(parser: argparse.ArgumentParser, given: list[str] | None, known: list[str]) -> list[str]:
    if given is None:
        return known
    asked = [name for names in given for name in names.split(",") if name not in {"", "none"}]
    for name in asked:
        if name not in known:
            parser.error(f"{name!r} is none of {', '.join(known)}")
    return [name for name in known if name in asked]


def _delays(parser: argparse.ArgumentParser, given: list[str]) -> list[float]:
    try:
        return [float(ms) for one in given for ms in one.split(",")]
    except ValueError:
        parser.error(f"--rtt takes milliseconds, such as 1,5; not {','.join(given)}")


def _measure(wanted: argparse.Namespace) -> dict[str, Any]:
    console = Console()
    if wanted.dir:
        wanted.dir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="headway-bench-", dir=wanted.dir))
    scale = QUICK if wanted.quick else FULL if wanted.full else DEFAULT
    about = facts(folder)
    for name, fact in about.items():
        console.print(f"{name}: {fact}", highlight=False, markup=False)
    begin = time.monotonic()
    try:
        stores = [
            _measure_on(name, rtt_ms, wanted, scale, folder, console)
            for name in wanted.store or GROUNDS
            for rtt_ms in (0.0, *(wanted.rtt if name in REMOTE else ()))
        ]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    console.print(f"\nall measured in {time.monotonic() - begin:.0f} s", highlight=False)
    return {"about": about, "stores": stores}


def _measure_on(
    name: str,
    rtt_ms: float,
    wanted: argparse.Namespace,
    scale: Scale,
    folder: Path,
    console: Console,
) -> dict[str, Any]:
    peers = [one for one in wanted.peers if name != "redis-everysec" or one in AOF_PEERS]
    try:
        with ExitStack() as stack:
            ground = stack.enter_context(GROUNDS[name]())
            if rtt_ms:
                ground = stack.enter_context(at_distance(ground, rtt_ms))
            found, missing = registry.systems(ground, peers)
            with Bench(ground, scale, folder, console, found) as bench:
                bench.say(f"\n{ground.title}", "bold underline")
                for fact, told in ground.facts().items():
                    bench.say(f"{fact}: {told}")
                for system in bench.peers:
                    bench.say(f"beside {system.name} {system.version}: {system.setting}")
                for absent in missing:
                    bench.say(f"without {absent.name}: {absent.why}")
                _run(bench, [case for case in wanted.cases if name in CASES[case][1]])
                return {
                    "store": name,
                    "title": ground.title,
                    "facts": ground.facts(),
                    "peers": [
                        {"name": one.name, "version": one.version, "setting": one.setting}
                        for one in bench.peers
                    ],
                    "missing": [absent._asdict() for absent in missing],
                    **bench.notebook.as_json(),
                }
    except NoGround as reason:
        console.print(f"\nwithout {name}: {reason}", style="bold", highlight=False, markup=False)
        empty: dict[str, list[Any]] = {"figures": [], "goals": [], "faults": [], "remarks": []}
        absent = {"name": name, "why": str(reason)}
        return {
            "store": name,
            "title": name,
            "facts": {},
            "peers": [],
            "missing": [absent],
            **empty,
        }


def _run(bench: Bench, cases: list[str]) -> None:
    begin = time.monotonic()
    _warm_up(bench)
    for number, name in enumerate(cases, 1):
        title, _, measure = CASES[name]
        bench.say(f"\n[{number} of {len(cases)}] {title}", "bold")
        measure(bench)
    bench.say("")
    goals.against_peers(bench)
    goals.of_two_processes(bench)
    _sum_up(bench, time.monotonic() - begin)


def _warm_up(bench: Bench) -> None:
    """Write a few jobs, so that the first measurement does not pay for a cold machine."""
    with bench.fresh() as place:
        bench.enqueue(bench.engine, place, "many", WARM)
    for system in bench.peers[:2]:
        with bench.fresh() as place:
            bench.enqueue(system, place, "one", WARM)


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
