"""`python -m bench.slice`: the whole system `calls` in real time, in processes, on each store."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench import machine, use_chart
from bench.campaign.__main__ import GROUNDS
from bench.slice import cases


def main() -> int:
    asked = _arguments()
    found: dict[str, Any] = {"about": machine.facts(Path.cwd())}
    faulty = False
    for store in asked.store or ["memory", *GROUNDS]:
        for case in asked.cases.split(","):
            told = _on(store, case, asked)
            found.setdefault(store, {})[case] = told
            faulty = faulty or bool(told.get("faults"))
            print(f"{time.strftime('%H:%M:%S')} {store}, {case}: {json.dumps(told, indent=1)}")
            sys.stdout.flush()
            if asked.json:
                asked.json.write_text(json.dumps(found, indent=1) + "\n")
    return 1 if faulty else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.slice", description=__doc__)
    parser.add_argument("--leads", type=int, default=2_500, help="leads of the slice (2500)")
    parser.add_argument("--talk", default="500ms,9500ms", help="range of call durations")
    parser.add_argument("--cases", default="slice,single,full", help="slice, single, full")
    parser.add_argument(
        "--store", action="append", choices=("memory", *GROUNDS), help="only this; repeatable"
    )
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--chart", type=Path, help="draw the use of the channels, as SVG")
    parser.add_argument("--keep", type=Path, help="keep logs and the directory in this folder")
    return parser.parse_args()


def _on(store: str, case: str, asked: argparse.Namespace) -> dict[str, Any]:
    with TemporaryDirectory() as temporary, GROUNDS.get(store, nullcontext)() as ground:
        folder = asked.keep / f"{store}-{case}" if asked.keep else Path(temporary)
        folder.mkdir(exist_ok=not asked.keep, parents=True)
        with nullcontext() if ground is None else ground.fresh(Path(temporary)) as place:
            url = "memory://" if place is None else place.url
            return _measured(folder, url, case, asked)


def _measured(folder: Path, url: str, case: str, asked: argparse.Namespace) -> dict[str, Any]:
    match case:
        case "slice":
            wanted = cases.Asked(leads=asked.leads, talk=asked.talk)
            told, use = asyncio.run(cases.a_slice(folder, url, wanted))
            if asked.chart:
                use_chart.draw(use.points, asked.chart, "seconds")
            return told
        case "single":
            return asyncio.run(cases.single(folder, url))
        case "full":
            return asyncio.run(cases.full(folder, url))
        case _:
            sys.exit(f"there is no case {case!r}")


if __name__ == "__main__":
    sys.exit(main())
