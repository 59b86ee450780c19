"""`python -m bench.campaign`: 100,000 leads over 100 channels, on each store, in virtual time."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench import use_chart
from bench.campaign.day import Day, Seen
from bench.campaign.plan import HOUR, START, Campaign
from bench.places import postgres, redis, sqlite
from bench.places.place import Ground
from headway.stores import open_store
from headway.testing.clock import FakeClock

GROUNDS: dict[str, Callable[[], AbstractContextManager[Ground]]] = {
    "sqlite": sqlite.opened,
    "postgres": postgres.opened,
    "redis": redis.opened,
}


SHOWN = 2 * HOUR
"""Part of the day that is drawn; later only leads with the same few phones are left."""


def main() -> int:
    asked = _arguments()
    found: dict[str, dict[str, Any]] = {}
    faulty = False
    for name in asked.store or ["memory", *GROUNDS]:
        seen = _on(name, asked.leads, asked.seed)
        found[name] = _row(seen)
        faulty = faulty or bool(seen.faults)
        _print(name, f"{found[name]}")
        for why, sentence in seen.whys.items():
            _print(name, f"why, {why}: {sentence}")
        for fault in seen.faults[:20]:
            _print(name, f"FAULT: {fault}")
        if asked.chart:
            busy = [one for one in seen.points if one[0] <= START + SHOWN]
            use_chart.draw(busy, asked.chart, "minutes")
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n")
    return 1 if faulty else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.campaign", description=__doc__)
    parser.add_argument("--leads", type=int, default=100_000, help="number of leads (100000)")
    parser.add_argument("--seed", type=int, default=1, help="random seed (1)")
    parser.add_argument(
        "--store", action="append", choices=("memory", *GROUNDS), help="only this; repeatable"
    )
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--chart", type=Path, help="draw the use of the channels, as SVG")
    return parser.parse_args()


def _on(name: str, leads: int, seed: int) -> Seen:
    if name == "memory":
        return asyncio.run(_play("memory://", name, leads, seed))
    with (
        GROUNDS[name]() as ground,
        TemporaryDirectory() as folder,
        ground.fresh(Path(folder)) as place,
    ):
        return asyncio.run(_play(place.url, name, leads, seed))


async def _play(url: str, name: str, leads: int, seed: int) -> Seen:
    clock = FakeClock(START)
    store = open_store(url, clock=clock)
    try:
        campaign = Campaign(leads, seed)
        return await Day(store, clock, campaign, lambda text: _print(name, text)).play()
    finally:
        await store.close()


def _row(seen: Seen) -> dict[str, Any]:
    starts = sorted(seen.starts.values())
    return {
        "calls": seen.calls,
        "use": round(seen.use, 5),
        "most": seen.most,
        "minutes_of_the_day": round((seen.ended_at - START) / 60_000, 1),
        "least_and_most_of_a_reseller": [starts[0], starts[-1]] if starts else [],
        "why_asked": dict(sorted(seen.asked.items())),
        "wall_s": round(seen.wall_s, 1),
        "faults": len(seen.faults),
    }


def _print(name: str, text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {name}: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
