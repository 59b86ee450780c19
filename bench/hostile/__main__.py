"""`python -m bench.hostile`: latency of other clients while producers send expensive bodies."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Any

from bench.child import child
from bench.hostile.bodies import BODIES, SLOW
from bench.hostile.clients import CLAIM, HEALTH, ask_steadily, flood
from bench.http.serving import engine_process
from bench.machine import facts, scheduled

WANTED_MS = 250.0
NONE = "nobody else"


def main() -> int:
    asked = _arguments()
    found: dict[str, Any] = {}
    with TemporaryDirectory(dir=asked.dir) as folder:
        about = facts(Path(folder))
        for name, fact in about.items():
            print(f"{name}: {fact}")
        print(
            f"{'':30} /healthz p50   p99    max | claims p50   p99    max  ms;"
            " the server ran, waited for a core; answers"
        )
        for name in (NONE, *(asked.body or (*BODIES, SLOW)), NONE):
            # Each on a new server, so that no body affects the measurement of another.
            path = Path(folder) / f"{len(found)}.db"
            with engine_process(f"sqlite:///{path}") as (port, pid):
                one = _measured(port, pid, name, asked)
            found.setdefault(name, []).append(one)
            _show(name, one)
    if asked.json:
        asked.json.write_text(json.dumps({"about": about, "found": found}, indent=1) + "\n")
    late = [
        name
        for name, each in found.items()
        if max(value["p99"] for one in each for value in (one["healthz"], one["claims"]))
        > WANTED_MS
    ]
    print(f"p99 above {WANTED_MS:g} ms: {', '.join(late) or 'never'}")
    return 1 if late else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.hostile", description=__doc__)
    parser.add_argument("--body", action="append", choices=(*BODIES, SLOW), help="only this")
    parser.add_argument("--producers", type=int, default=8, help="number of producers (8)")
    parser.add_argument("--seconds", type=float, default=10, help="seconds for each body (10)")
    parser.add_argument("--each", type=float, default=0.02, help="seconds between requests (0.02)")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--dir", type=Path, help="folder for the databases, on a real disk")
    return parser.parse_args()


def _measured(port: int, pid: int, name: str, asked: argparse.Namespace) -> dict[str, Any]:
    # Warm up: the first request pays for imports and declarations.
    asyncio.run(_asked(port, asked.each, 1))
    if name == NONE:
        return _observed(port, pid, asked)
    with child(flood, port, name, asked.producers) as producers:
        producers.receive()
        found = _observed(port, pid, asked)
        return {**found, "answers": producers.ask("end")}


def _observed(port: int, pid: int, asked: argparse.Namespace) -> dict[str, Any]:
    before = scheduled(pid)
    found: dict[str, Any] = asyncio.run(_asked(port, asked.each, asked.seconds))
    ran, waited = (now - then for now, then in zip(scheduled(pid), before, strict=True))
    return {**found, "ran_s": ran, "waited_s": waited}


async def _asked(port: int, each_s: float, seconds: float) -> dict[str, dict[str, float]]:
    health, claims = await asyncio.gather(
        ask_steadily(port, HEALTH, each_s=each_s, seconds=seconds),
        ask_steadily(port, CLAIM, each_s=each_s, seconds=seconds),
    )
    return {"healthz": _summary(health), "claims": _summary(claims)}


def _summary(taken: list[float]) -> dict[str, float]:
    hundredths = quantiles(taken, n=100, method="inclusive")
    return {"p50": hundredths[49], "p99": hundredths[98], "max": max(taken)}


def _show(name: str, one: dict[str, Any]) -> None:
    health, claims = one["healthz"], one["claims"]
    print(
        f"{name:30}      {health['p50']:7.1f} {health['p99']:6.0f} {health['max']:6.0f} |"
        f"    {claims['p50']:7.1f} {claims['p99']:6.0f} {claims['max']:6.0f}"
        f"  {one['ran_s']:5.1f} s {one['waited_s']:5.1f} s  {one.get('answers', '')}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
