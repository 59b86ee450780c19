"""Whether all of it was right: told by checkers that share no code with the engine."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import headway as hw
from examples.demo.airports import Airports
from examples.demo.call_centre import rules as calls_rules
from examples.demo.limits import limits
from examples.demo.mail_room.room import MailRoom
from examples.demo.mail_room.rules import Letters, letter_violations
from examples.demo.mail_room.sender import job_id
from examples.demo.repairs import rules as repairs_rules
from examples.departures import checker
from examples.departures.__main__ import DAY
from headway.contract.views import JobView
from headway.lab.history import History, read_into
from headway.lab.invariants import check

MADE_BY_OTHERS = frozenset({"land"})
OURS = frozenset({"departures", "landings"})
"""Lanes in which only the demo itself makes jobs; anybody may send others over HTTP."""

SERVED = frozenset({"calls", "calls.after", "offers", "offers.after", "rings"})
"""Lanes of the systems, whose jobs are told from outside: by their routes, and by the carrier."""

ENDED = frozenset({"succeeded", "cancelled"})
MOVEMENTS = (
    checker.malformed_rows_are_reported,
    checker.each_row_has_one_job,
    checker.nothing_leaves_early,
    checker.no_aircraft_is_in_two_places,
    checker.no_runway_takes_two_within_75_s,
    checker.no_agent_sees_off_two_at_once,
)
"""The rules that hold in the middle of a day as well."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What was looked at, and what is wrong with it.

    Attributes:
        flights: how many flights left.
        calls: how many calls to leads were dialled.
        repairs: how many requests for help were taken by somebody.
        letters: how many letters arrived.
        doubled: how many of them twice, because a worker died with them in its hands.
        jobs: how many jobs were looked at.
        violations: what is wrong; nothing, unless there is a bug.
    """

    flights: int
    calls: int
    repairs: int
    letters: int
    doubled: int
    jobs: int
    violations: tuple[str, ...]


async def judge(  # noqa: PLR0913, PLR0917  (all that went on)
    store: hw.Store,
    url: str,
    folder: Path,
    airports: Airports,
    mail: MailRoom,
    calls: calls_rules.Told,
    repairs: repairs_rules.Told,
) -> Verdict:
    """Looks at everything that happened.

    Args:
        store: of the demo; nobody works in it any more.
        url: of the same store, for the export.
        folder: where the export goes.
        airports: what was sent there, and at which speed.
        mail: likewise, and what its mail server took.
        calls: what the server said of its leads, and what the carrier saw.
        repairs: likewise of the requests for help.

    Returns:
        The verdict.
    """
    accepted = {letter.job for letter in mail.sender.accepted.values()}
    history = History(start_at=0, sent=airports.sent | accepted)
    await read_into(history, store)
    jobs = {job.id: job for job in history.jobs}
    history.jobs = [job for job in history.jobs if job.lane not in SERVED]
    history.sent |= {job.id for job in history.jobs if job.kind in MADE_BY_OTHERS}
    history.sent |= {job.id for job in history.jobs if _is_a_guests(job)}
    found = [f"{rule}: {where}" for rule, where in check(history, limits(airports.pace.speed))]
    found += (f"calls: {line}" for line in calls_rules.call_violations(calls, jobs))
    found += (f"repairs: {line}" for line in repairs_rules.repair_violations(repairs))
    exported = folder / "history.jsonl"
    await asyncio.to_thread(_export, url, exported)
    found += departures_violations(
        DAY.read_bytes().splitlines(), exported.read_text().splitlines(), airports.pace.speed
    )
    found += letter_violations(
        Letters(
            accepted=mail.sender.accepted,
            asked=mail.sender.asked,
            taken=mail.postbox.taken,
            jobs=jobs,
            dead=mail.crew.dead,
            faults=mail.sender.faults,
        )
    )
    return Verdict(
        flights=airports.left,
        calls=len(calls.calls),
        repairs=sum(one["technician"] is not None for one in repairs.requests.values()),
        letters=len(mail.postbox.taken),
        doubled=sum(1 for times in mail.postbox.taken.values() if times > 1),
        jobs=len(jobs),
        violations=tuple(found),
    )


def _is_a_guests(job: JobView) -> bool:
    """Whether somebody sent it over HTTP to see what happens."""
    return job.lane not in OURS and not (job.key or "").startswith(job_id(0)[:-1])


def _export(url: str, path: Path) -> None:
    command = ["headway", "export", "--store", url, "--out", str(path)]
    quiet = subprocess.DEVNULL
    subprocess.run([sys.executable, "-m", *command], check=True, stdout=quiet, stderr=quiet)


def departures_violations(
    rows: Iterable[bytes], history: Iterable[str], speed: float
) -> Iterator[str]:
    """What the checker of the departures finds in a day that may not be over.

    How flights move is checked of all; how they end, of those that have ended.

    Args:
        rows: the lines of the day.
        history: the lines of an export.
        speed: seconds of the day in one second of the run.

    Yields:
        A line for each violation.
    """
    kinds = checker.FLIGHT_KINDS | {checker.LANDING_KIND}
    lines = [line for line in history if _kind(line) in kinds]
    day = checker.read_day(rows, lines, (), speed)
    found = [*day.strays, *(one for rule in MOVEMENTS for one in rule(day))]
    for name in list(day.rows):
        if any(job["state"] not in ENDED for job in day.flights.get(name, ())):
            for job in day.flights.pop(name):
                for run in job["runs"]:
                    day.landings.pop(f"{job['id']}:{run['run']}", None)
            del day.rows[name]
    found += [one for rule in checker.RULES if rule not in MOVEMENTS for one in rule(day)]
    yield from (f"{rule}: {where}" for rule, where in found)


def _kind(line: str) -> str:
    return str(json.loads(line).get("kind", "")) if line.strip() else ""
