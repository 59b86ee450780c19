"""Enqueue one by one, by many callers at once, and in bulk; beside what apsw alone commits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bench import raw
from bench.bench import Bench
from bench.raw import RawTable
from bench.systems import with_headway, with_huey, with_litequeue

ONE = "enqueue one by one"
BULK = "enqueue in bulk"
RAW = "apsw, same row"
BARE = "apsw, six columns"
MANY = "headway, 32 callers"
TOGETHER = 5
"""Times as many jobs where callers share commits, so that it lasts long enough to be timed."""


def one_by_one(bench: Bench) -> None:
    count = bench.scale.single
    turns: dict[str, Callable[[Path], float]] = {
        RAW: lambda folder: raw_rate(folder, lambda table: table.single(count)),
        "headway": lambda folder: with_headway.enqueue_one(folder, count),
        "headway, app.send": lambda folder: with_headway.enqueue_sync(folder, count),
        MANY: lambda folder: with_headway.enqueue_together(folder, TOGETHER * count),
        "huey": lambda folder: with_huey.enqueue_one(folder, count),
        "litequeue": lambda folder: with_litequeue.enqueue_one(folder, count),
        BARE: lambda folder: raw.bare_single(folder / "bare.db", count),
    }
    rates = in_turns(bench, turns)
    for name, values in rates.items():
        bench.add(ONE, name, "/s", values)
    limit = bench.notebook.find(ONE, RAW)
    alone = bench.notebook.find(ONE, "headway")
    many = bench.notebook.find(ONE, MANY)
    if limit and alone and many:
        bench.goal("enqueue one against raw commits", alone.median / limit.median, least=0.9)
        bench.goal("32 callers against raw commits", many.median / limit.median, least=8)


def in_bulk(bench: Bench) -> None:
    count = bench.scale.bulk
    turns: dict[str, Callable[[Path], float]] = {
        RAW: lambda folder: raw_rate(folder, lambda table: table.bulk(count)),
        "headway": lambda folder: with_headway.fill(folder, count),
        BARE: lambda folder: raw.bare_bulk(folder / "bare.db", count),
    }
    for name, values in in_turns(bench, turns).items():
        bench.add(BULK, name, "/s", values)
    limit = bench.notebook.find(BULK, RAW)
    ours = bench.notebook.find(BULK, "headway")
    if limit and ours:
        bench.goal("bulk enqueue against raw inserts", ours.median / limit.median, least=0.5)


def in_turns(bench: Bench, turns: dict[str, Callable[[Path], float]]) -> dict[str, list[float]]:
    """Each in its turn, A B A B, each time in a folder of its own."""
    values: dict[str, list[float]] = {name: [] for name in turns}
    for repeat in range(bench.scale.repeats):
        for name, measure in turns.items():
            bench.doing(f"{name}, {repeat + 1} of {bench.scale.repeats}")
            with bench.fresh() as folder:
                values[name].append(measure(folder))
    return values


def raw_rate(folder: Path, measure: Callable[[RawTable], float]) -> float:
    """What apsw alone reaches on a file that the engine has made."""
    with_headway.fill(folder, 1)
    table = RawTable.open(folder / "headway.db")
    try:
        return measure(table)
    finally:
        table.close()
