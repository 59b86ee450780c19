"""`python -m tests.torture`: races, kills and faults on each store, checked from the outside."""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from tests.servers.process import ServiceMissing
from tests.torture.automations import run_and_kill
from tests.torture.brokers import Size as Flow
from tests.torture.brokers import pass_through_and_kill
from tests.torture.calls import call_and_kill
from tests.torture.checker import Violation
from tests.torture.evidence import Evidence
from tests.torture.faults import fail_again_and_again
from tests.torture.field import offer_and_kill
from tests.torture.file_flag import stop
from tests.torture.histories import live_through
from tests.torture.kills import kill_again_and_again
from tests.torture.notify import Size, notify_and_kill
from tests.torture.open_transactions import beside_open_send, beside_open_snapshot
from tests.torture.over_http import serve_and_kill
from tests.torture.races import race
from tests.torture.site import KINDS, Kind, Site, site_of

RACE_JOBS, KILLS, FAULTS_S = 20_000, 60, 30.0
HTTP_JOBS, HTTP_KILLS = 10_000, 20
FIELD_REQUESTS, FIELD_KILLS = 100, 30
QUICK_JOBS, QUICK_KILLS, QUICK_FAULTS_S = 2_000, 8, 3.0
CALLS_KILLS, QUICK_CALLS_KILLS = 200, 20
NOTIFICATIONS, BURST, NOTIFY_S, NOTIFY_RATE = 100_000, 50_000, 600.0, 500
QUICK_NOTIFICATIONS, QUICK_BURST, QUICK_NOTIFY_S = 400, 200, 16.0
HISTORY_S, QUICK_HISTORY_S = 600.0, 20.0
SESSIONS_S, QUICK_SESSIONS_S = 600.0, 30.0
MESSAGES, MESSAGE_RATE = 50_000, 200
QUICK_MESSAGES, QUICK_MESSAGE_RATE = 600, 5
SKEW_MS = 2_000
OPEN_S, PASSING = 60.0, 100_000
MOST_GROWTH = 1.5
"""How many times longer a claim may take while a snapshot is held open."""
MOST_SHOWN = 20

RIGS: dict[str, tuple[Kind, ...]] = {
    "races": KINDS,
    "kills": KINDS,
    "faults": ("postgres", "redis"),
    "http": KINDS,
    "calls": KINDS,
    "open": ("postgres",),
    "snapshot": ("postgres",),
    "field": KINDS,
    "notifications": KINDS,
    "automations": KINDS,
    "brokers": KINDS,
    "history": KINDS,
}
"""The rigs, and the stores that each runs on."""
USUAL = ("races", "kills", "faults", "http", "calls")

Found = tuple[list[str], list[Violation]]


def main() -> int:
    wanted = _arguments()
    seed = random.randrange(10**9) if wanted.seed is None else wanted.seed
    chosen = [wanted.rig] if wanted.rig else USUAL
    runs = [
        (name, kind) for name in chosen for kind in _kinds(name, wanted.store) if kind in RIGS[name]
    ]
    if not runs:
        print(
            f"{wanted.rig} does not run on {wanted.store}; it runs on {', '.join(RIGS[chosen[0]])}"
        )
        return 2
    failed = sum(_run(name, kind, seed, wanted) for name, kind in runs)
    return 1 if failed else 0


def _kinds(name: str, store: str | None) -> Sequence[Kind]:
    if store is None and name == "brokers":
        return ("sqlite",)
    return [kind for kind in KINDS if store in {None, "all", kind}]


def _run(name: str, kind: Kind, seed: int, wanted: argparse.Namespace) -> int:
    _say(f"{name} on {kind}, seed {seed}")
    if wanted.dir:
        wanted.dir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"headway-{name}-", dir=wanted.dir))
    begin = time.monotonic()
    try:
        with site_of(kind, folder, failing=name in {"faults", "field", "history"}) as site:
            lines, violations = _RUN[name](folder, site, seed, wanted)
    except ServiceMissing as reason:
        print(f"{name} on {kind}: not run, {reason}")
        return 0 if wanted.store in {None, "all"} else 1
    for line in lines:
        print(f"  {line}")
    for one in violations[:MOST_SHOWN]:
        print(f"  VIOLATION {one.rule}: {one.where}")
    seconds = time.monotonic() - begin
    where = f"{name} on {kind}"
    if violations:
        print(f"{where}: {len(violations)} violations in {seconds:.0f} s; seed {seed}, {folder}")
    else:
        shutil.rmtree(folder)
        print(f"{where}: no violation in {seconds:.0f} s; seed {seed}")
    return len(violations)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument(
        "rig", nargs="?", choices=list(RIGS), help="by default: " + ", ".join(USUAL)
    )
    parser.add_argument(
        "--store", choices=[*KINDS, "all"], help="all by default; beside the brokers, sqlite"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of it")
    parser.add_argument("--seed", type=int, help="of what is drawn; printed at each run")
    parser.add_argument(
        "--jobs",
        "--messages",
        type=int,
        help=f"of the race, {RACE_JOBS} by default; of the snapshot, {PASSING}; "
        f"of notifications, {NOTIFICATIONS}; through the brokers, {MESSAGES}",
    )
    parser.add_argument(
        "--kills",
        type=int,
        help=f"{KILLS} by default; of calls, {CALLS_KILLS}; of each process beside the brokers, 1",
    )
    parser.add_argument(
        "--skew",
        type=int,
        default=SKEW_MS,
        metavar="MS",
        help=f"by how much the clocks beside the brokers are off, {SKEW_MS} by default",
    )
    parser.add_argument(
        "--for",
        type=float,
        dest="seconds",
        metavar="SECONDS",
        help=f"of faults, {FAULTS_S:.0f} by default; of the open transaction, {OPEN_S:.0f}; "
        f"of a history, {HISTORY_S:.0f}; of notifications, {NOTIFY_S:.0f}; "
        f"of automations, {SESSIONS_S:.0f}",
    )
    parser.add_argument("--burst", type=int, help=f"of notifications, {BURST} by default")
    parser.add_argument(
        "--rate",
        type=int,
        help=f"of all providers, {NOTIFY_RATE} a second; of messages to the brokers, "
        f"{MESSAGE_RATE}",
    )
    parser.add_argument("--gated", action="store_true", help="jobs beside the snapshot pass gates")
    parser.add_argument(
        "--dir", type=Path, help="where the files lie; kept if there are violations"
    )
    parser.add_argument(
        "--plant",
        choices=["lose", "call early", "one line", "leave early", "hand over late", "dial again"],
        default="",
        help="a fault, to see that it is found",
    )
    return parser.parse_args()


def _races(folder: Path, site: Site, seed: int, wanted: argparse.Namespace) -> Found:
    jobs = wanted.jobs or (QUICK_JOBS if wanted.quick else RACE_JOBS)
    seen, violations = race(folder, site, seed, jobs, _say, wanted.plant)
    what = f"{jobs} jobs by two that flood, beside a light one"
    return [what, *_summary(seen)], violations


def _kills(folder: Path, site: Site, seed: int, wanted: argparse.Namespace) -> Found:
    kills = wanted.kills or (QUICK_KILLS if wanted.quick else KILLS)
    seen, violations, killed = kill_again_and_again(folder, site, seed, kills, _say, wanted.plant)
    what = f"{killed.by_rig} killed at random moments, {killed.by_themselves} where it hurts; "
    what += f"{killed.stopped} stopped for longer than their lease"
    return [what, *_summary(seen)], violations


def _faults(folder: Path, site: Site, seed: int, wanted: argparse.Namespace) -> Found:
    seconds = wanted.seconds or (QUICK_FAULTS_S if wanted.quick else FAULTS_S)
    seen, violations, faults = fail_again_and_again(folder, site, seed, seconds, _say)
    return [faults.summary, *_summary(seen)], violations


def _history(folder: Path, site: Site, seed: int, wanted: argparse.Namespace) -> Found:
    seconds = wanted.seconds or (QUICK_HISTORY_S if wanted.quick else HISTORY_S)
    seen, violations, events = live_through(folder, site, seed, seconds, _say)
    happened = ", ".join(f"{count} {name}" for name, count in sorted(events.items()))
    cancels = sum(map(len, seen.cancels.values()))
    answers = sum(map(len, seen.answers.values()))
    fires = sum(record["entry"] is not None for record in seen.jobs.values())
    parts = f"{cancels} cancels, {answers} answers to offers, {fires} fires, "
    parts += f"{len(seen.closings)} closings"
    return [happened, parts, *_summary(seen)], violations


def _http(folder: Path, site: Site, seed: int, wanted: argparse.Namespace) -> Found:
    del folder
    jobs = wanted.jobs or (QUICK_JOBS if wanted.quick else HTTP_JOBS)
    kills = wanted.kills or (QUICK_KILLS if wanted.quick else HTTP_KILLS)
    return serve_and_kill(site, seed, jobs, kills, _say)


def _calls(folder: Path, site: Site, seed: int, wanted: argparse.Namespace) -> Found:
    kills = wanted.kills or (QUICK_CALLS_KILLS if wanted.quick else CALLS_KILLS)
    return call_and_kill(folder, site.url, seed, kills, _say, wanted.plant)


def _field(folder: Path, site: Site, seed: int, wanted: argparse.Namespace) -> Found:
    requests = wanted.jobs or FIELD_REQUESTS // (10 if wanted.quick else 1)
    kills = wanted.kills or FIELD_KILLS // (10 if wanted.quick else 1)
    return offer_and_kill(folder, site, seed, requests, kills, _say)


def _notifications(folder: Path, site: Site, seed: int, wanted: argparse.Namespace) -> Found:
    size = Size(
        steady=wanted.jobs or (QUICK_NOTIFICATIONS if wanted.quick else NOTIFICATIONS),
        seconds=wanted.seconds or (QUICK_NOTIFY_S if wanted.quick else NOTIFY_S),
        burst=wanted.burst or (QUICK_BURST if wanted.quick else BURST),
        rate=wanted.rate or NOTIFY_RATE,
        lease_s=3 if wanted.quick else 10,
    )
    return notify_and_kill(folder, site, seed, size, _say)


def _automations(folder: Path, site: Site, seed: int, wanted: argparse.Namespace) -> Found:
    seconds = wanted.seconds or (QUICK_SESSIONS_S if wanted.quick else SESSIONS_S)
    return run_and_kill(folder, site, seed, seconds, _say)


def _brokers(folder: Path, site: Site, seed: int, wanted: argparse.Namespace) -> Found:
    size = Flow(
        messages=wanted.jobs or (QUICK_MESSAGES if wanted.quick else MESSAGES),
        rate=wanted.rate or (QUICK_MESSAGE_RATE if wanted.quick else MESSAGE_RATE),
        kills=1 if wanted.kills is None else wanted.kills,
        off_ms=wanted.skew,
    )
    return pass_through_and_kill(folder, site, seed, size, _say)


def _open(folder: Path, site: Site, seed: int, wanted: argparse.Namespace) -> Found:
    del seed
    seen = beside_open_send(site.own_url, stop(folder), wanted.seconds or OPEN_S)
    violations = [Violation("waited", one) for one in seen.waited]
    if not seen.kept:
        violations.append(Violation("lost", "what was sent is not there, or was there too early"))
    if seen.differences:
        violations.append(Violation("audit", f"{seen.differences} differences"))
    if not all(seen.claims):
        violations.append(Violation("stuck", f"claims by process: {seen.claims}"))
    claims = f"claims {seen.claims}, at most {seen.longest_ms:.0f} ms apart"
    return [f"{seen.looks} looks at who waits: {len(seen.waited)} did; {claims}"], violations


def _snapshot(folder: Path, site: Site, seed: int, wanted: argparse.Namespace) -> Found:
    del folder, seed
    jobs = wanted.jobs or PASSING
    with site_of("postgres", Path()) as other:
        seen = asyncio.run(
            beside_open_snapshot(site.own_url, other.own_url, jobs, gated=wanted.gated, say=_say)
        )
    lines = [
        f"{seen.jobs} jobs in {seen.seconds:.0f} s; a claim took {seen.first_ms:.2f} ms at first, "
        f"{seen.last_ms:.2f} ms in the end: x {seen.growth:.2f}",
        f"where nothing was held open: {seen.other_first_ms:.2f} ms, {seen.other_last_ms:.2f} ms",
        f"rows that nobody could clear away: {seen.dead}",
    ]
    violations: list[Violation] = []
    if seen.growth > MOST_GROWTH:
        violations.append(Violation("slower", f"x {seen.growth:.2f}, at most {MOST_GROWTH}"))
    if seen.differences:
        violations.append(Violation("audit", f"{seen.differences} differences"))
    return lines, violations


_RUN: dict[str, Callable[[Path, Site, int, argparse.Namespace], Found]] = {
    "races": _races,
    "kills": _kills,
    "faults": _faults,
    "http": _http,
    "calls": _calls,
    "open": _open,
    "snapshot": _snapshot,
    "field": _field,
    "notifications": _notifications,
    "automations": _automations,
    "brokers": _brokers,
    "history": _history,
}


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
    again = sum(len(jobs) - 1 for jobs in seen.same.values())
    yield f"{again} keys sent again under another id, because nobody knew"
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
