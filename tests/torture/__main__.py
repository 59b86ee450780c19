"""`python -m tests.torture`: races and kills on one SQLite file, judged from the outside."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

from tests.torture.checker import Violation
from tests.torture.evidence import Evidence
from tests.torture.kills import kill_again_and_again
from tests.torture.races import race

RACE_JOBS, KILLS = 20_000, 50
QUICK_JOBS, QUICK_KILLS = 2_000, 8
MOST_SHOWN = 20


def main() -> int:
    wanted = _arguments()
    seed = random.randrange(10**9) if wanted.seed is None else wanted.seed
    jobs = wanted.jobs or (QUICK_JOBS if wanted.quick else RACE_JOBS)
    kills = wanted.kills or (QUICK_KILLS if wanted.quick else KILLS)
    rigs: dict[str, Callable[[Path], tuple[Evidence, list[Violation], str]]] = {
        "races": lambda folder: _races(folder, seed, jobs, wanted.plant),
        "kills": lambda folder: _kills(folder, seed, kills, wanted.plant),
    }
    failed = 0
    for name in [wanted.only] if wanted.only else list(rigs):
        _say(f"{name}, seed {seed}")
        folder = Path(tempfile.mkdtemp(prefix=f"headway-{name}-", dir=wanted.dir))
        begin = time.monotonic()
        seen, violations, what = rigs[name](folder)
        for line in [what, *_summary(seen)]:
            print(f"  {line}")
        for one in violations[:MOST_SHOWN]:
            print(f"  VIOLATION {one.rule}: {one.where}")
        seconds = time.monotonic() - begin
        if violations:
            failed += 1
            print(f"{name}: {len(violations)} violations in {seconds:.0f} s; seed {seed}, {folder}")
        else:
            shutil.rmtree(folder)
            print(f"{name}: no violation in {seconds:.0f} s; seed {seed}")
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of it")
    parser.add_argument("--only", choices=["races", "kills"])
    parser.add_argument("--seed", type=int, help="of what is drawn; printed at each run")
    parser.add_argument("--jobs", type=int, help=f"of the race; {RACE_JOBS} by default")
    parser.add_argument("--kills", type=int, help=f"{KILLS} by default")
    parser.add_argument(
        "--dir", type=Path, help="where the files lie; kept if there are violations"
    )
    parser.add_argument(
        "--plant",
        choices=["lose", "call early", "one line", "leave early"],
        default="",
        help="a fault, to see that it is found",
    )
    return parser.parse_args()


def _races(folder: Path, seed: int, jobs: int, plant: str) -> tuple[Evidence, list[Violation], str]:
    seen, violations = race(folder, seed, jobs, _say, plant)
    return seen, violations, f"{jobs} jobs by two that flood, beside a light one"


def _kills(
    folder: Path, seed: int, kills: int, plant: str
) -> tuple[Evidence, list[Violation], str]:
    seen, violations, killed = kill_again_and_again(folder, seed, kills, _say, plant)
    what = f"{killed.by_rig} killed at random moments, {killed.by_fate} where it hurts; "
    what += f"{killed.stopped} stopped for longer than their lease"
    return seen, violations, what


def _say(line: str) -> None:
    print(f"  … {line}", flush=True)


def _summary(seen: Evidence) -> Iterator[str]:
    states: dict[str, int] = {}
    runs = 0
    for job in seen.jobs.values():
        states[job["state"]] = states.get(job["state"], 0) + 1
        runs += len(job["runs"])
    yield f"{len(seen.jobs)} jobs on record: " + ", ".join(
        f"{count} {state}" for state, count in sorted(states.items())
    )
    yield f"{runs} runs, {len(seen.doings)} seen at work, {seen.torn} lines torn by kills"
    refused = sum(one[4] == "lost" for told in seen.verdicts.values() for one in told)
    yield f"{refused} writes of runs that were no longer live, refused"
    calls = sum(len(one.calls) for one in seen.doings)
    handed = sum(one.handed is not None for one in seen.doings)
    yield f"{handed} handed over, {calls} calls, {sum(map(len, seen.signals.values()))} signals"
    held = [one["held"] for one in seen.audits]
    busy = sum(count > 0 for count in held)
    yield f"{len(held)} audits, {busy} of them while jobs were held, at most {max(held, default=0)}"
    silences = [
        (later.at - one.since) / 1e6 / one.lease_ms
        for worker in seen.beats.values()
        for one, later in pairwise(sorted(worker))
    ]
    replies = [(one.at - one.since) / 1e6 for beats in seen.beats.values() for one in beats]
    if silences:
        yield (
            f"{len(replies)} beats, answered within {max(replies):.0f} ms; "
            f"the longest silence took {max(silences):.0%} of its lease"
        )


if __name__ == "__main__":
    sys.exit(main())
