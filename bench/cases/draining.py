"""Drain: all is queued first, then one worker process does it; first handler to last."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bench.bench import Bench
from bench.cases.enqueueing import in_turns, raw_rate
from bench.notebook import HEADWAY
from bench.raw import RawTable
from bench.systems import with_headway, with_huey, with_litequeue
from bench.tally import Delivered

DRAIN = "drain of no-op jobs"
DEEP = "drain by depth"
GATED = "drain with gates on every job"
CLAIMS = "raw claims"


def against_peers(bench: Bench) -> None:
    count = bench.scale.drain
    turns = {
        "headway": with_headway.drain,
        "huey": with_huey.drain,
        "litequeue": with_litequeue.drain,
    }
    note = f"{count:,} queued"
    rates = in_turns(
        bench, {name: _rate(bench, name, count, drain) for name, drain in turns.items()}
    )
    for name, values in rates.items():
        bench.add(DRAIN, name, "/s", values, note)
    ours = bench.notebook.find(DRAIN, "headway")
    peer = bench.notebook.find(DRAIN, "huey")
    if ours and peer:
        bench.goal("drain against huey", ours.median / peer.median, least=10)


def raw_claims(bench: Bench) -> None:
    count = bench.scale.drain

    def claims(size: int) -> Callable[[Path], float]:
        def measure(folder: Path) -> float:
            def filled(table: RawTable) -> float:
                table.bulk(count)
                return table.claims(count, size)

            return raw_rate(folder, filled)

        return measure

    sizes = {f"apsw, {size} a claim": claims(size) for size in (100, 1_000)}
    for name, values in in_turns(bench, sizes).items():
        bench.add(CLAIMS, name, "/s", values)


def by_depth(bench: Bench) -> None:
    shallow = bench.scale.drain
    depths = (shallow, *bench.scale.deep)
    turns = {
        f"{depth:,} queued": _rate(bench, HEADWAY, depth, with_headway.drain) for depth in depths
    }
    for name, values in in_turns(bench, turns).items():
        bench.add(DEEP, name, "/s", values)
    base = bench.notebook.find(DEEP, f"{shallow:,} queued")
    for depth in bench.scale.deep:
        deep = bench.notebook.find(DEEP, f"{depth:,} queued")
        if base and deep:
            what = f"drain at {depth:,} queued against {shallow:,}"
            bench.goal(what, deep.median / base.median, least=0.8)


def with_gates(bench: Bench) -> None:
    count = bench.scale.gated

    def gated(folder: Path, jobs: int) -> Delivered:
        return with_headway.drain(folder, jobs, with_headway.wide_gates())

    turns = {
        "without gates": _rate(bench, HEADWAY, count, with_headway.drain),
        "Slots, Rate and Pool": _rate(bench, HEADWAY, count, gated),
    }
    for name, values in in_turns(bench, turns).items():
        bench.add(GATED, name, "/s", values)
    plain = bench.notebook.find(GATED, "without gates")
    wide = bench.notebook.find(GATED, "Slots, Rate and Pool")
    if plain and wide:
        bench.goal("drain with three gates against none", wide.median / plain.median, least=0.5)


def _rate(
    bench: Bench, name: str, count: int, drain: Callable[[Path, int], Delivered]
) -> Callable[[Path], float]:
    def measure(folder: Path) -> float:
        done = drain(folder, count)
        bench.delivered(name, f"{count:,} drained", done.lost, done.double)
        return count / done.seconds

    return measure
