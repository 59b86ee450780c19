"""Enqueue one by one, by many concurrent callers, and in bulk; on SQLite compared with apsw."""

from __future__ import annotations

from collections.abc import Callable

from bench import raw
from bench.bench import Bench
from bench.cases.raw_limits import raw_rate
from bench.child import child
from bench.notebook import HEADWAY
from bench.places.place import Place
from bench.systems import with_headway
from bench.systems.river import RiverSystem
from bench.systems.system import System

ONE = "enqueue one by one"
BULK = "enqueue in bulk"
RAW = "apsw, same row"
BARE = "apsw, six columns"
SYNC = "headway, app.send"
MANY = "headway, 32 callers"
WHOLE = "headway, all in one call"
RIVER_WHOLE = "river, all in one call"
TOGETHER = 5
"""Factor for the number of jobs if callers share commits, so that it lasts long enough."""


def one_by_one(bench: Bench) -> None:
    count = bench.scale.single
    turns = {system.name: _enqueue(bench, system, "one", count) for system in bench.systems}
    turns |= {
        SYNC: lambda place: _sync(place, count),
        MANY: _enqueue(bench, bench.engine, "together", TOGETHER * count),
    }
    if bench.ground.store == "sqlite":
        turns |= {
            RAW: lambda place: raw_rate(place, lambda table: table.single(count)),
            BARE: lambda place: raw.bare_single(place.folder / "bare.db", count),
        }
    for name, values in bench.in_turns(turns).items():
        bench.add(ONE, name, "/s", values)
    limit = bench.notebook.find(ONE, RAW)
    alone = bench.notebook.find(ONE, HEADWAY)
    many = bench.notebook.find(ONE, MANY)
    if limit and alone and many:
        bench.goal("enqueue one against raw commits", alone.median / limit.median, least=0.9)
        bench.goal("32 callers against raw commits", many.median / limit.median, least=8)


def in_bulk(bench: Bench) -> None:
    count = bench.scale.bulk
    turns: dict[str, Callable[[Place], float]] = {}
    notes: dict[str, str] = {}
    for system in bench.systems:
        if not system.bulk:
            continue
        fewer = count if system.name == HEADWAY else bench.scale.bulk_peers
        turns[system.name] = _enqueue(bench, system, "many", fewer)
        notes[system.name] = f"{fewer:,} jobs, 1,000 a call"
        if isinstance(system, RiverSystem):
            turns[RIVER_WHOLE] = _enqueue(bench, system, "whole", count)
            notes[RIVER_WHOLE] = f"{count:,} jobs"
    turns[WHOLE] = _enqueue(bench, bench.engine, "whole", count)
    notes[WHOLE] = f"{count:,} jobs"
    if bench.ground.store == "sqlite":
        turns |= {
            RAW: lambda place: raw_rate(place, lambda table: table.bulk(count)),
            BARE: lambda place: raw.bare_bulk(place.folder / "bare.db", count),
        }
    for name, values in bench.in_turns(turns).items():
        bench.add(BULK, name, "/s", values, notes.get(name, ""))
    limit = bench.notebook.find(BULK, RAW)
    ours = bench.notebook.find(BULK, HEADWAY)
    if limit and ours:
        bench.goal("bulk enqueue against raw inserts", ours.median / limit.median, least=0.5)
    whole, peer = bench.notebook.find(BULK, WHOLE), bench.notebook.find(BULK, RIVER_WHOLE)
    if whole and peer:
        what = "bulk enqueue against River, all in one call"
        bench.goal(what, whole.median / peer.median, least=1.1)


def _enqueue(bench: Bench, system: System, verb: str, count: int) -> Callable[[Place], float]:
    return lambda place: bench.enqueue(system, place, verb, count)


def _sync(place: Place, count: int) -> float:
    with child(with_headway.enqueue_sync, place.url, count) as sender:
        return sender.receive()
