"""`python -m bench.nearby`: find technicians nearby among 100,000, compared with a full scan."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import text

from bench.machine import facts
from bench.nearby.full_scan import SCAN, FullScan
from bench.nearby.technicians import Map, fill
from bench.places import postgres, sqlite
from bench.places.place import Ground, NoGround
from headway.systems.directory.database import Directory
from headway.systems.field_service.nearby import nearby
from headway.systems.field_service.records import SCHEMAS

SCHEMA = SCHEMAS[0]
GROUNDS: dict[str, Callable[[], AbstractContextManager[Ground]]] = {
    "sqlite": sqlite.opened,
    "postgres": postgres.opened,
}
ASKED: dict[str, dict[str, Any]] = {
    "anybody within 50 km": {"radius_km": 50},
    "one skill within 50 km": {"radius_km": 50, "skills": ["gas"]},
    "a rare skill within 500 km": {"radius_km": 500, "skills": ["organ"]},
    "two skills within 50 km": {"radius_km": 50, "skills": ["boiler", "gas"]},
    "three skills, anywhere": {"skills": ["gas", "roof", "lock"]},
    "the nearest one, anywhere": {"most": 1},
}
WANTED_MS = 5.0
SCANS = 10
REPEATS = 5


def main() -> int:
    asked = _arguments()
    found: dict[str, Any] = {}
    wrong = 0
    with TemporaryDirectory(dir=asked.dir) as folder:
        about = facts(Path(folder))
        for name, fact in about.items():
            print(f"{name}: {fact}")
        for name in asked.store or GROUNDS:
            try:
                with GROUNDS[name]() as ground, ground.fresh(Path(folder)) as place:
                    print(f"\n{ground.title}", flush=True)
                    found[name] = asyncio.run(_measure(place.url, asked))
                    wrong += found[name]["wrong"]
            except NoGround as reason:
                print(f"\nwithout {name}: {reason}")
    if asked.json:
        asked.json.write_text(json.dumps({"about": about, "found": found}, indent=1) + "\n")
    return 1 if wrong else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.nearby", description=__doc__)
    parser.add_argument("--technicians", type=int, default=100_000, help="their number (100000)")
    parser.add_argument("--positions", type=int, default=200, help="number of searches (200)")
    parser.add_argument("--seed", type=int, default=1, help="random seed (1)")
    parser.add_argument("--store", action="append", choices=tuple(GROUNDS), help="only this")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--dir", type=Path, help="folder for the databases, on a real disk")
    return parser.parse_args()


async def _measure(url: str, asked: argparse.Namespace) -> dict[str, Any]:
    drawn = Map(asked.seed)
    technicians = drawn.technicians(asked.technicians)
    positions = drawn.positions(asked.positions)
    full_scan = FullScan(technicians)
    directory = Directory(url)
    directory.needs(SCHEMA)
    await directory.open()
    try:
        begin = time.perf_counter()
        await fill(directory, technicians)
        async with directory.change() as session:
            await session.execute(text("ANALYZE"))
        print(f"  {len(technicians)} technicians written in {time.perf_counter() - begin:.0f} s")
        rows: dict[str, Any] = {}
        wrong = 0
        for name, more in ASKED.items():
            rows[name] = row = await _ask(directory, full_scan, positions, more)
            wrong += row.pop("wrong")
            print(f"  {name:<28} {_summary(row)}", flush=True)
        scan = await _scan(directory, positions)
        nothing = await _nothing(directory)
    finally:
        await directory.close()
    times = scan["least_p50"] / rows["anybody within 50 km"]["least_p50"]
    print(f"  {'all looked at, in SQL':<28} {_summary(scan)}; {times:.0f} x anybody within 50 km")
    print(f"  {'SELECT 1':<28} {_summary(nothing)}")
    for name in ("p50", "p99", "least_p50", "least_p99"):
        slow = [what for what, row in rows.items() if row[name] >= WANTED_MS]
        print(f"  {name} below {WANTED_MS:g} ms: {'all' if not slow else 'not ' + ', '.join(slow)}")
    print(f"  answers that differ from a look at everybody: {wrong}")
    rows |= {"all looked at, in SQL": scan, "SELECT 1": nothing}
    return {"rows": rows, "wrong": wrong}


async def _ask(
    directory: Directory,
    full_scan: FullScan,
    positions: Sequence[tuple[float, float]],
    more: dict[str, Any],
) -> dict[str, Any]:
    wrong = told = 0
    for lat, lon in positions:
        found = await nearby(directory, lat=lat, lon=lon, **more)
        wrong += found != full_scan.nearby(lat, lon, **more)
        told += len(found)
    times: list[float] = []
    for lat, lon in positions:
        times += [await _ms(nearby(directory, lat=lat, lon=lon, **more)) for _ in range(REPEATS)]
    return {**_times(times), "told": told / len(positions), "wrong": wrong}


async def _scan(directory: Directory, positions: Sequence[tuple[float, float]]) -> dict[str, Any]:
    times = [
        await _ms(_statement(directory, SCAN, lat=lat, lon=lon))
        for lat, lon in positions[:SCANS]
        for _ in range(REPEATS)
    ]
    return _times(times)


async def _nothing(directory: Directory) -> dict[str, Any]:
    """Time an empty statement in its own session, as a baseline."""
    times = [await _ms(_statement(directory, "SELECT 1")) for _ in range(200 * REPEATS)]
    return _times(times)


async def _statement(directory: Directory, told: str, **given: float) -> None:
    async with directory.read() as session:
        (await session.execute(text(told), given)).all()


async def _ms(what: Awaitable[object]) -> float:
    begin = time.perf_counter()
    await what
    return (time.perf_counter() - begin) * 1000


def _times(times: Sequence[float]) -> dict[str, float]:
    """Return percentiles of all times, and of the minimum per position.

    Other load on the machine disturbs the minimum less.
    """
    least = [min(times[first : first + REPEATS]) for first in range(0, len(times), REPEATS)]
    return {
        "p50": round(median(times), 2),
        "p99": round(quantiles(times, n=100)[98], 2),
        "least_p50": round(median(least), 2),
        "least_p99": round(quantiles(least, n=100)[98], 2),
    }


def _summary(row: dict[str, Any]) -> str:
    undisturbed = f"least of {REPEATS}: p50 {row['least_p50']:.2f}, p99 {row['least_p99']:.2f}"
    told = f"; {row['told']:.1f} told" if "told" in row else ""
    return f"p50 {row['p50']:.2f} ms, p99 {row['p99']:.2f} ms; {undisturbed}{told}"


if __name__ == "__main__":
    sys.exit(main())
