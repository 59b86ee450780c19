"""Drain: all jobs are queued first, then worker processes run them; timed from first to last."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

from bench.bench import Bench
from bench.cases.raw_limits import raw_rate
from bench.notebook import HEADWAY
from bench.places.place import Place
from bench.raw import RawTable
from bench.systems import with_headway
from bench.systems.river import RiverSystem
from bench.systems.system import PythonSystem, System
from bench.working import drain

DRAIN = "drain of no-op jobs"
PAIR = "drain by two processes"
DEEP = "drain by depth"
GATED = "drain with gates on every job"
CLAIMS = "raw claims"
LOCKED = "drain at contended locks"
LOCKS, LOCKERS = 100, 4
"""Number of keys and of worker processes in that case."""
SHARED = "handlers that wait, by several processes"
HANDLER_S, HANDLERS, PROCESSES = 0.2, 50, (1, 2, 4, 8)
"""In that case: how long a handler waits, handlers per process, and numbers of processes."""


def against_peers(bench: Bench) -> None:
    _compare(bench, DRAIN, workers=1)


def by_two(bench: Bench) -> None:
    _compare(bench, PAIR, workers=2)


def _compare(bench: Bench, case: str, workers: int) -> None:
    turns: dict[str, Callable[[Place], float]] = {}
    notes: dict[str, str] = {}
    for system in bench.systems:
        if system.slow and workers > 1 and not bench.scale.slow_pairs:
            continue
        count = bench.scale.drain_slow if system.slow else bench.scale.drain
        turns[system.name] = _rate(bench, system, count, workers)
        notes[system.name] = f"{count:,} queued"
    for name, values in bench.in_turns(turns).items():
        bench.add(case, name, "/s", values, notes[name])


def raw_claims(bench: Bench) -> None:
    count = bench.scale.drain

    def claims(size: int) -> Callable[[Place], float]:
        def measure(place: Place) -> float:
            def filled(table: RawTable) -> float:
                table.bulk(count)
                return table.claims(count, size)

            return raw_rate(place, filled)

        return measure

    sizes = {f"apsw, {size} a claim": claims(size) for size in (100, 1_000)}
    for name, values in bench.in_turns(sizes).items():
        bench.add(CLAIMS, name, "/s", values)


def by_depth(bench: Bench) -> None:
    depths = (bench.scale.drain, *bench.scale.deep)
    turns = {f"{depth:,} queued": _rate(bench, bench.engine, depth) for depth in depths}
    for system in bench.systems:
        if isinstance(system, RiverSystem):
            turns |= {_river(depth): _rate(bench, system, depth) for depth in bench.scale.deep}
    for name, values in bench.in_turns(turns).items():
        bench.add(DEEP, name, "/s", values)
    base = bench.notebook.find(DEEP, f"{bench.scale.drain:,} queued")
    for depth in bench.scale.deep:
        deep = bench.notebook.find(DEEP, f"{depth:,} queued")
        if base and deep:
            what = f"drain at {depth:,} queued against {bench.scale.drain:,}"
            bench.goal(what, deep.median / base.median, least=0.8)
        peer = bench.notebook.find(DEEP, _river(depth))
        if peer and deep:
            what = f"drain at {depth:,} queued against River"
            bench.goal(what, deep.median / peer.median, least=1.5)


def _river(depth: int) -> str:
    return f"river, {depth:,} queued"


def with_gates(bench: Bench) -> None:
    count = bench.scale.gated
    gated = PythonSystem(
        with_headway.Headway(
            bench.ground.store,
            gates=with_headway.wide_gates(),
            places=with_headway.GATED_PLACES,
        )
    )
    gated.name = "headway, Slots, Rate and Pool"
    turns = {
        "headway, without gates": _rate(bench, bench.engine, count),
        gated.name: _rate(bench, gated, count),
    }
    for name, values in bench.in_turns(turns).items():
        bench.add(GATED, name, "/s", values)
    plain = bench.notebook.find(GATED, "headway, without gates")
    wide = bench.notebook.find(GATED, gated.name)
    if plain and wide:
        bench.goal("drain with three gates against none", wide.median / plain.median, least=0.5)


def at_locks(bench: Bench) -> None:
    """Measure jobs of which only one per key runs at a time, on several processes."""
    turns: dict[str, Callable[[Place], float]] = {}
    for system in bench.systems:
        if isinstance(system, PythonSystem) and system.peer.keyed:
            peer = copy(system.peer)
            peer.locks = LOCKS
            turns[peer.name] = _rate(bench, PythonSystem(peer), bench.scale.locked, LOCKERS)
    note = f"{bench.scale.locked:,} queued, {LOCKS} keys, {LOCKERS} processes"
    for name, values in bench.in_turns(turns).items():
        bench.add(LOCKED, name, "/s", values, note)


def waiting_handlers(bench: Bench) -> None:
    """Measure how much of all handlers' time is used: prefetching too much leaves others idle."""
    systems = _waiting(bench)
    turns: dict[str, Callable[[Place], float]] = {}
    for workers in PROCESSES:
        count = workers * HANDLERS * bench.scale.rounds
        for setting, system in systems.items():
            turns[f"{setting}, {workers}"] = _rate(bench, system, count, workers)
    for name, values in bench.in_turns(turns, repeats=bench.scale.waiting).items():
        workers = int(name.rpartition(" ")[2])
        ideal = _ideal(bench, workers)
        share = sorted(values)[len(values) // 2] / ideal
        bench.add(SHARED, name, "/s", values, f"{share:.2f} of ideal")
    for setting in systems:
        _goals_of(bench, setting)


def _ideal(bench: Bench, workers: int) -> float:
    """Return the jobs per second of handlers that never wait for a job."""
    rounds = bench.scale.rounds
    # Between the end of the first handler and the end of the last, there is one round less.
    return workers * HANDLERS * rounds / (rounds - 1) / HANDLER_S


def _waiting(bench: Bench) -> dict[str, System]:
    """Return the systems with waiting handlers, by setting."""
    gate = with_headway.one_wide_gate()
    settings: dict[str, dict[str, Any]] = {
        HEADWAY: {},
        f"{HEADWAY}, prefetch 0": {"prefetch": 0},
        f"{HEADWAY}, one Slots": {"gates": gate},
    }
    found: dict[str, System] = {}
    for name, setting in settings.items():
        peer = with_headway.Headway(
            bench.ground.store, seconds=HANDLER_S, places=HANDLERS, **setting
        )
        found[name] = PythonSystem(peer)
    for system in bench.peers:
        if isinstance(system, PythonSystem) and system.peer.waits:
            peer = copy(system.peer)
            peer.seconds, peer.places = HANDLER_S, HANDLERS
            found[system.name] = PythonSystem(peer)
        elif isinstance(system, RiverSystem):
            waiting = copy(system)
            waiting.seconds, waiting.places = HANDLER_S, HANDLERS
            found[system.name] = waiting
    return found


def _goals_of(bench: Bench, setting: str) -> None:
    one, most = (bench.notebook.find(SHARED, f"{setting}, {n}") for n in (1, PROCESSES[-1]))
    if not setting.startswith(HEADWAY) or one is None or most is None:
        return
    what = f"{HANDLERS} handlers of 200 ms ({setting}), {PROCESSES[-1]} processes"
    if setting.endswith("Slots"):
        bench.goal(f"{what} against one", most.median / one.median, least=5)
    else:
        ideal = _ideal(bench, PROCESSES[-1])
        near = bench.ground.name == bench.ground.store
        bench.goal(f"{what} against ideal", most.median / ideal, least=0.95 if near else 0.88)


def _rate(bench: Bench, system: System, count: int, workers: int = 1) -> Callable[[Place], float]:
    def measure(place: Place) -> float:
        bench.enqueue(system, place, "many", count)
        done = drain(system, place, count, workers=workers)
        lost = done.lost
        if system.name.startswith(HEADWAY):
            # The store's counts must agree with the handlers' counts.
            lost = max(lost, count - with_headway.succeeded(place.url))
        bench.delivered(system.name, f"{count:,} drained", lost, done.double)
        return (count - done.lost) / done.seconds

    return measure
