"""The verdict on the demo, by checkers that share no code with the engine."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import headway as hw
from examples.demo.airports import Airports
from examples.demo.automations import rules as session_rules
from examples.demo.call_centre import rules as calls_rules
from examples.demo.limits import limits
from examples.demo.mail_room.room import MailRoom
from examples.demo.mail_room.rules import Letters, letter_violations
from examples.demo.mail_room.sender import job_id
from examples.demo.newsroom import rules as issue_rules
from examples.demo.repairs import rules as repairs_rules
from examples.departures import checker
from examples.departures.__main__ import DAY
from headway.contract.views import JobView
from headway.lab.history import History, read_into
from headway.lab.invariants import check

MADE_BY_OTHERS = frozenset({"land"})
OURS = frozenset({"departures", "landings"})
"""Lanes in which only the demo creates jobs; any client may send jobs to others over HTTP."""

SERVED = frozenset(
    {"calls", "calls.after", "offers", "offers.after", "rings", "automations", "notify.email"}
)
"""Lanes of the systems, whose jobs are checked by replies, the carrier's ledger and sessions."""

ENDED = frozenset({"succeeded", "cancelled"})
MOVEMENTS = (
    checker.malformed_rows_are_reported,
    checker.each_row_has_one_job,
    checker.nothing_leaves_early,
    checker.no_aircraft_is_in_two_places,
    checker.no_runway_takes_two_within_75_s,
    checker.no_agent_sees_off_two_at_once,
)
"""The rules that also hold before the end of a day."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """The evidence of the demo's programs.

    Attributes:
        calls: The server's leads, and the carrier's calls.
        repairs: The server's repair requests, and the carrier's messages.
        notifications: The notifications that were sent, and those that arrived.
        sessions: Records of sessions, repositories and server; None if no session could run.
    """

    calls: calls_rules.Evidence
    repairs: repairs_rules.Evidence
    notifications: issue_rules.Evidence
    sessions: session_rules.Written | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """The verdict on one system.

    Attributes:
        system: Name of the system.
        did: Counts of what it did; empty if it was omitted.
        judge: The source that it was checked against.
        violations: Violations of its rules; none, unless there is a bug.
    """

    system: str
    did: Mapping[str, int]
    judge: str
    violations: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """The verdict on the demo.

    Attributes:
        systems: The verdict on each system.
        jobs: Number of jobs.
    """

    systems: tuple[Judged, ...]
    jobs: int

    @property
    def violations(self) -> list[str]:
        """The violations of all systems."""
        return [line for one in self.systems for line in one.violations]


async def judge(
    store: hw.Store,
    url: str,
    folder: Path,
    airports: Airports,
    mail: MailRoom,
    evidence: Evidence,
) -> Verdict:
    """Check everything that happened.

    Args:
        store: The store; its workers must have stopped.
        url: URL of the store, for the export.
        folder: Folder for the export.
        airports: The departures that were sent, and their speed.
        mail: The letters that were accepted and arrived.
        evidence: The evidence of the other systems.
    """
    accepted = {letter.job for letter in mail.sender.accepted.values()}
    history = History(start_at=0, sent=airports.sent | accepted)
    await read_into(history, store)
    jobs = {job.id: job for job in history.jobs}
    history.jobs = [job for job in history.jobs if job.lane not in SERVED]
    history.sent |= {job.id for job in history.jobs if job.kind in MADE_BY_OTHERS}
    history.sent |= {job.id for job in history.jobs if _is_a_guests(job)}
    speed = airports.pace.speed
    exported = folder / "history.jsonl"
    await asyncio.to_thread(_export, url, exported)
    rows, lines = DAY.read_bytes().splitlines(), exported.read_text().splitlines()
    systems = (
        Judged(
            system="departures",
            did={"flights left": airports.left},
            judge="the exported history, the simulator's checker",
            violations=(
                *(f"{rule}: {where}" for rule, where in check(history, limits(speed))),
                *departures_violations(rows, lines, speed),
            ),
        ),
        _calls(evidence.calls, jobs),
        _repairs(evidence.repairs, jobs),
        _letters(mail, jobs),
        _issues(evidence.notifications),
        _sessions(evidence.sessions),
    )
    return Verdict(systems=systems, jobs=len(jobs))


def _calls(evidence: calls_rules.Evidence, jobs: Mapping[str, JobView]) -> Judged:
    return Judged(
        system="calls",
        did={"leads": len(evidence.accepted), "calls dialled": len(evidence.calls)},
        judge="the carrier's ledger",
        violations=tuple(f"calls: {line}" for line in calls_rules.call_violations(evidence, jobs)),
    )


def _repairs(evidence: repairs_rules.Evidence, jobs: Mapping[str, JobView]) -> Judged:
    taken = sum(one["technician"] is not None for one in evidence.requests.values())
    found = repairs_rules.repair_violations(evidence, jobs)
    return Judged(
        system="field_service",
        did={
            "requests": len(evidence.accepted),
            "taken": taken,
            "alerts sent": len(evidence.alerts),
        },
        judge="the carrier's ledger",
        violations=tuple(f"repairs: {line}" for line in found),
    )


def _letters(mail: MailRoom, jobs: Mapping[str, JobView]) -> Judged:
    taken = mail.postbox.taken
    letters = Letters(
        accepted=mail.sender.accepted,
        asked=mail.sender.asked,
        taken=taken,
        jobs=jobs,
        dead=mail.crew.dead,
        faults=mail.sender.faults,
    )
    doubled = sum(1 for times in taken.values() if times > 1)
    return Judged(
        system="lanes",
        did={
            "letters arrived": len(taken),
            "twice": doubled,
            "workers killed": sum(len(worker.died) for worker in mail.crew.workers),
        },
        judge="the mail server",
        violations=tuple(letter_violations(letters)),
    )


def _issues(evidence: issue_rules.Evidence) -> Judged:
    states = Counter(one["status"] for one in evidence.notifications.values())
    found = issue_rules.issue_violations(evidence)
    return Judged(
        system="notifications",
        did={"arrived": sum(evidence.taken.values()), "not wanted": states["SKIPPED"]},
        judge="the inbox of the mail server",
        violations=tuple(f"notifications: {line}" for line in found),
    )


def _sessions(written: session_rules.Written | None) -> Judged:
    if written is None:
        return Judged(system="automations", did={}, judge="", violations=())
    states = Counter(job["state"] for job in written.sessions.values())
    found = session_rules.session_violations(written)
    return Judged(
        system="automations",
        did={
            "sessions": states["succeeded"] + states["dead"],
            "killed at their timeout": states["dead"],
            "fires folded": states["cancelled"],
        },
        judge="the sessions' journal, the repositories",
        violations=tuple(f"automations: {line}" for line in found),
    )


def _is_a_guests(job: JobView) -> bool:
    """Return whether a user of the demo sent the job over HTTP."""
    return job.lane not in OURS and not (job.key or "").startswith(job_id(0)[:-1])


def _export(url: str, path: Path) -> None:
    command = ["headway", "export", "--store", url, "--out", str(path)]
    quiet = subprocess.DEVNULL
    subprocess.run([sys.executable, "-m", *command], check=True, stdout=quiet, stderr=quiet)


def departures_violations(
    rows: Iterable[bytes], history: Iterable[str], speed: float
) -> Iterator[str]:
    """Yield the violations that the departures' checker finds in a day that may not be over.

    The movements of all flights are checked, and the ends of those that have ended.

    Args:
        rows: Lines of the day's file.
        history: Lines of an export.
        speed: Seconds of the day per second of the run.
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
