"""Check a day of departures from its files alone.

The checker reads the rows of the day, the history written by `headway export`, and the lines that
the import refused. It imports neither Headway nor this example, so that it cannot share their bugs.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

RUNWAY_MS = 75_000
AGENTS = 4
GROUND_MIN = 60
FLIGHT_KINDS = {"depart", "depart_unassigned"}
LANDING_KIND = "land"
PLANNED = ("flight", "carrier", "aircraft", "origin", "dest", "due_at", "air_time_min")
CODE = re.compile(r"[A-Za-z0-9-]{1,16}")

Json = dict[str, Any]


class Violation(NamedTuple):
    """A violation of a rule, and where it occurs."""

    rule: str
    where: str


class Row(NamedTuple):
    """A well-formed line of the day."""

    line: int
    plan: Json
    due_ms: int

    @property
    def name(self) -> str:
        """Flight, airport and scheduled time, which together are unique."""
        return f"{self.plan['flight']} {self.plan['origin']} {self.plan['due_at']}"

    @property
    def flies(self) -> bool:
        """Whether it was not cancelled."""
        return self.plan["air_time_min"] is not None


@dataclass(slots=True)
class Day:
    """The input of the rules.

    Attributes:
        speed: Seconds of the day per second of the run.
        rows: Well-formed lines by name, each name once.
        malformed: Numbers of the lines that are not flights, or contradict an earlier line.
        refused: Numbers of the lines that the import refused.
        flights: Exported jobs of flights, by name.
        landings: Exported jobs of landings, by the run that they end.
        strays: Violations found while reading.
    """

    speed: float
    rows: dict[str, Row] = field(default_factory=dict)
    malformed: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    flights: dict[str, list[Json]] = field(default_factory=lambda: defaultdict(list))
    landings: dict[str, list[Json]] = field(default_factory=lambda: defaultdict(list))
    strays: list[Violation] = field(default_factory=list)

    def pairs(self) -> Iterator[tuple[Row, Json]]:
        """Yield each row with each of its jobs."""
        for name, row in self.rows.items():
            for job in self.flights.get(name, ()):
                yield row, job

    def flown(self) -> Iterator[tuple[Row, Json, Json]]:
        """Yield each row and job with each of its runs."""
        for row, job in self.pairs():
            for run in job["runs"]:
                yield row, job, run


# ------------------------------------------------------------------------------------- reading


def read_day(
    rows: Iterable[bytes], history: Iterable[str], refused: Iterable[int], speed: float
) -> Day:
    """Read all input; unreadable lines become violations, never exceptions.

    Args:
        rows: Lines of the day's file.
        history: Lines of the export.
        refused: Numbers, from 1, of the lines that the import refused.
        speed: Seconds of the day per second of the run.
    """
    day = Day(speed=speed, refused=set(refused))
    for number, line in enumerate(rows, 1):
        if line.strip():
            _read_row(day, number, line)
    for number, line in enumerate(history, 1):
        if line.strip():
            _read_job(day, number, line)
    return day


def _read_row(day: Day, number: int, line: bytes) -> None:
    plan = _plan(line)
    if plan is None:
        day.malformed.add(number)
        return
    moment = datetime.fromisoformat(plan["due_at"])
    row = Row(number, plan, round(moment.timestamp() * 1000))
    known = day.rows.setdefault(row.name, row)
    if known.plan != row.plan:
        day.malformed.add(number)


def _plan(line: bytes) -> Json | None:
    """Return the fields that identify a flight; None if the line is not a flight."""
    try:
        row = json.loads(line.decode(), parse_constant=_no_constant)
        json.dumps(row, ensure_ascii=False).encode()  # refuses lone surrogates
        plan = {name: row[name] for name in PLANNED}
        offset = datetime.fromisoformat(plan["due_at"]).utcoffset()
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    codes = [plan[name] for name in ("flight", "carrier", "origin", "dest")]
    codes += [plan["aircraft"]] * (plan["aircraft"] is not None)
    minutes = 1 if plan["air_time_min"] is None else plan["air_time_min"]
    fine = (
        offset is not None
        and all(isinstance(code, str) and CODE.fullmatch(code) for code in codes)
        and type(minutes) is int
        and 1 <= minutes <= 2880
    )
    return plan if fine else None


def _no_constant(name: str) -> None:
    message = f"{name} is not JSON, although Python's parser accepts it"
    raise ValueError(message)


def _read_job(day: Day, number: int, line: str) -> None:
    try:
        job = json.loads(line)
        if job.get("format") == "headway-export":
            return
        kind, arguments = job["kind"], job["args"]
        _check_shape(job)
        if kind in FLIGHT_KINDS:
            name = f"{arguments['flight']} {arguments['origin']} {arguments['due_at']}"
            day.flights[name].append(job)
        elif kind == LANDING_KIND:
            day.landings[arguments["flight"]].append(job)
        else:
            day.strays.append(Violation("from nowhere", f"job {job['id']} of kind {kind!r}"))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        day.strays.append(Violation("unreadable", f"line {number} of the history: {error!r}"))


def _check_shape(job: Json) -> None:
    numbers = [job["due_at"]]
    numbers += [run[name] for run in job["runs"] for name in ("due_at", "claimed_at")]
    ends = [run[name] for run in job["runs"] for name in ("handed_at", "ended_at")]
    numbers += [at for at in ends if at is not None]
    if not all(type(at) is int for at in numbers):
        message = "an instant is not a whole number"
        raise TypeError(message)
    if not all(isinstance(run["permits"], dict) for run in job["runs"]):
        message = "the permits of a run are not an object"
        raise TypeError(message)


# --------------------------------------------------------------------------------------- rules


def malformed_rows_are_reported(day: Day) -> Iterator[Violation]:
    """No malformed row is dropped silently, and no well-formed one is refused."""
    for line in sorted(day.malformed - day.refused):
        yield Violation("dropped", f"line {line} is malformed and the import did not say so")
    for line in sorted(day.refused - day.malformed):
        yield Violation("refused", f"line {line} is well-formed, and the import refused it")


def each_row_has_one_job(day: Day) -> Iterator[Violation]:
    """No row is lost, duplicated or altered, and no job has no row."""
    for name, row in day.rows.items():
        jobs = day.flights.get(name, [])
        if not jobs:
            yield Violation("lost", f"{name} of line {row.line} has no job")
        if len(jobs) > 1:
            yield Violation("doubled", f"{name} has {len(jobs)} jobs")
    for name, jobs in day.flights.items():
        if name not in day.rows:
            yield Violation("from nowhere", f"job {jobs[0]['id']} is {name}, which no row names")
    for row, job in day.pairs():
        planned = {**row.plan, **job["args"]}
        kind = "depart" if row.plan["aircraft"] is not None else "depart_unassigned"
        if planned != row.plan or job["kind"] != kind:
            yield Violation("altered", f"{row.name}: job {job['id']} differs from its row")


def each_flight_ends_once(day: Day) -> Iterator[Violation]:
    """A flight that departed succeeded in exactly one run, its last; a cancelled one never did."""
    for row, job in day.pairs():
        wanted = "succeeded" if row.flies else "cancelled"
        if job["state"] != wanted or job["finished_at"] is None:
            yield Violation("wrong end", f"{row.name} is {job['state']}, not {wanted}")
        yield from _left_as_often_as_it_should(row, job)
        if not row.flies and not any(n["author"] and n["reason"] for n in job["trail"]):
            yield Violation("no trail", f"{row.name}: its cancellation has no author, or no reason")


def _left_as_often_as_it_should(row: Row, job: Json) -> Iterator[Violation]:
    runs = job["runs"]
    numbers = [run["run"] for run in runs]
    if numbers != sorted(set(numbers)):
        yield Violation("not once", f"{row.name}: its runs are numbered {numbers}")
    left = [run["run"] for run in runs if run["handed_at"] is not None]
    succeeded = [run["run"] for run in runs if run["outcome"] == "succeeded"]
    wanted = numbers[-1:] if row.flies else []
    if left != wanted or succeeded != wanted or (row.flies and not wanted):
        where = f"{row.name}: left in runs {left}, succeeded in runs {succeeded} of {numbers}"
        yield Violation("not once", where)
    for run in runs:
        steps = [run["claimed_at"], run["handed_at"], run["ended_at"]]
        known = [at for at in steps if at is not None]
        if run["ended_at"] is None or known != sorted(known):
            yield Violation("disorder", f"{row.name}, run {run['run']}: {steps}")


def nothing_leaves_early(day: Day) -> Iterator[Violation]:
    """No flight starts before it is due, and each is due at its row's time."""
    for row, job, run in day.flown():
        early = max(_planned(job), run["due_at"]) - run["claimed_at"]
        if early > 0:
            yield Violation("too early", f"{row.name} started {early} ms before it was due")
    # All due times are shifted by the same amount, except for rounding to milliseconds.
    shifts = [
        (_planned(job) - row.due_ms / day.speed, row, job["state"] == "cancelled")
        for row, job in day.pairs()
    ]
    middle = sorted(shift for shift, *_ in shifts)[len(shifts) // 2] if shifts else 0.0
    for shift, row, cancelled in shifts:
        # The import moves the due time of a cancelled flight ahead.
        if shift - middle < -1.01 or (shift - middle > 1.01 and not cancelled):
            where = f"{row.name} was due {shift - middle:+.0f} ms from what its row says"
            yield Violation("wrong moment", where)


def _planned(job: Json) -> int:
    """Return when a flight was first due; after a lost run, it is due again later."""
    due_at: int = job["runs"][0]["due_at"] if job["runs"] else job["due_at"]
    return due_at


def no_aircraft_is_in_two_places(day: Day) -> Iterator[Violation]:
    """An aircraft is held by one flight at a time, from the start to the end of each run."""
    held: dict[str, list[tuple[int, float, str]]] = defaultdict(list)
    for row, _, run in day.flown():
        aircraft = row.plan["aircraft"]
        if aircraft is not None:
            end = float("inf") if run["ended_at"] is None else run["ended_at"]
            held[aircraft].append((run["claimed_at"], end, row.name))
            if f"aircraft:{aircraft}" not in run["permits"]:
                yield Violation("no lock", f"{row.name}, run {run['run']}, held no {aircraft}")
    for aircraft, spans in held.items():
        until, holder = float("-inf"), ""
        for start, end, name in sorted(spans):
            if start < until:
                where = f"{aircraft} was held by {holder} when {name} took it at {start}"
                yield Violation("two places", where)
            if end > until:
                until, holder = end, name


def no_aircraft_is_back_too_soon(day: Day) -> Iterator[Violation]:
    """An aircraft is away for twice its air time plus an hour; one landing ends each flight."""
    expected: set[str] = set()
    for row, job, run in day.flown():
        if run["handed_at"] is None or not row.flies:
            continue
        reference = f"{job['id']}:{run['run']}"
        expected.add(reference)
        away_ms = (2 * row.plan["air_time_min"] + GROUND_MIN) * 60_000 / day.speed
        back_at = run["ended_at"]
        if back_at is not None and back_at - run["claimed_at"] < away_ms - 1:
            gone = back_at - run["claimed_at"]
            yield Violation("back too soon", f"{row.name}: {gone} ms away, not {away_ms:.0f}")
        landed = [j["state"] for j in day.landings.get(reference, [])]
        if landed != ["succeeded"]:
            yield Violation("landing", f"{row.name} has the landings {landed}, not one succeeded")
    for reference in day.landings.keys() - expected:
        yield Violation("from nowhere", f"a landing ends {reference}, which never left")


def no_runway_takes_two_within_75_s(day: Day) -> Iterator[Violation]:
    """Starts at the same airport are at least 75 s of the day apart."""
    starts: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for row, _, run in day.flown():
        starts[row.plan["origin"]].append((run["claimed_at"], row.name))
    for origin, taken in starts.items():
        for (before, first), (after, second) in pairwise(sorted(taken)):
            if after - before < RUNWAY_MS / day.speed:
                where = f"{origin}: {second} {after - before} ms after {first}"
                yield Violation("runway", where)


def no_agent_sees_off_two_at_once(day: Day) -> Iterator[Violation]:
    """From start to hand-over, a flight has one of its airport's four agents exclusively."""
    busy: dict[tuple[str, str], list[tuple[int, float, str]]] = defaultdict(list)
    for row, _, run in day.flown():
        free_at = run["ended_at"] if run["handed_at"] is None else run["handed_at"]
        origin = row.plan["origin"]
        agent = run["permits"].get(f"agents:{origin}") or "none"
        end = float("inf") if free_at is None else free_at
        busy[origin, agent].append((run["claimed_at"], end, row.name))
    crews = Counter(origin for origin, agent in busy if agent != "none")
    for origin, crew in crews.items():
        if crew > AGENTS:
            yield Violation("agents", f"{origin} has {crew} agents, not {AGENTS}")
    for (origin, agent), spans in busy.items():
        if agent == "none":
            yield from (Violation("agents", f"{name}: no agent of {origin}") for *_, name in spans)
            continue
        for (_, end, first), (start, _, second) in pairwise(sorted(spans)):
            if start < end:
                where = f"agent {agent} of {origin} had {first} when {second} started at {start}"
                yield Violation("agents", where)


RULES: tuple[Callable[[Day], Iterator[Violation]], ...] = (
    malformed_rows_are_reported,
    each_row_has_one_job,
    each_flight_ends_once,
    nothing_leaves_early,
    no_aircraft_is_in_two_places,
    no_aircraft_is_back_too_soon,
    no_runway_takes_two_within_75_s,
    no_agent_sees_off_two_at_once,
)


def check(day: Day) -> list[Violation]:
    """Return all violations, in the order of the rules."""
    return [*day.strays, *(violation for rule in RULES for violation in rule(day))]


# ------------------------------------------------------------------------------------- command


def main(arguments: list[str] | None = None) -> int:
    """Print all violations, and return 1 if there are any.

    Args:
        arguments: Command line arguments; None for the program's own.
    """
    parser = argparse.ArgumentParser(
        description="Check the exported history of a day of departures."
    )
    parser.add_argument("history", type=Path, help="output of `headway export`")
    parser.add_argument("rows", type=Path, help="the imported file")
    parser.add_argument("--speed", type=float, required=True, help="speed of the run")
    parser.add_argument("--refused", type=Path, help="output of `headway import --json`")
    asked = parser.parse_args(arguments)
    refused: list[int] = []
    if asked.refused is not None:
        report = json.loads(asked.refused.read_text())
        refused = [row["line"] for row in report["refused"]]
    with asked.rows.open("rb") as rows, asked.history.open() as history:
        day = read_day(rows, history, refused, asked.speed)
    violations = check(day)
    for rule, where in violations:
        print(f"violation: {rule}: {where}")
    flights = sum(map(len, day.flights.values()))
    print(
        f"{len(day.rows)} rows, {len(day.malformed)} malformed lines, {flights} flights,"
        f" {sum(map(len, day.landings.values()))} landings: {len(violations)} violations"
    )
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
