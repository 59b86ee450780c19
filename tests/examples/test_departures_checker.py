"""The checker of the departures passes a correct history, and names each fault planted in one."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from copy import deepcopy
from datetime import datetime, timedelta
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from examples.departures import checker

EXAMPLE = Path(checker.__file__).parent
DAY = EXAMPLE / "departures-2013-01-15.jsonl"
SPEED = 600.0
START = 1_800_000_000_000

Json = dict[str, Any]


class World:
    """A day's rows and their history, for a test to corrupt in one place."""

    def __init__(self, rows: list[Json]) -> None:
        self.rows = [json.dumps(row).encode() for row in rows]
        self.refused: list[int] = []
        self.jobs = dispatch(rows)

    def flight(self, number: str) -> Json:
        return next(j for j in self.jobs if j["args"].get("flight") == number)

    def landing_of(self, job: Json) -> Json:
        reference = f"{job['id']}:{job['run']}"
        return next(j for j in self.jobs if j["args"].get("flight") == reference)

    def violations(self) -> list[checker.Violation]:
        lines = [json.dumps(job) for job in self.jobs]
        return checker.check(checker.read_day(self.rows, lines, self.refused, SPEED))


def dispatch(rows: list[Json]) -> list[Json]:
    """Return a correct history, computed independently: a single pass in due order."""
    runway: dict[str, int] = defaultdict(int)
    aircraft: dict[str, int] = defaultdict(int)
    agents: dict[tuple[str, int], int] = defaultdict(int)
    opens = min(datetime.fromisoformat(row["due_at"]) for row in rows)
    jobs: list[Json] = []
    for row in sorted(rows, key=lambda row: datetime.fromisoformat(row["due_at"])):
        due = datetime.fromisoformat(row["due_at"]) - opens
        job = a_job(f"flight-{len(jobs)}", START + int(due / timedelta(milliseconds=1) / SPEED))
        job["kind"] = "depart" if row["aircraft"] else "depart_unassigned"
        job["args"] = {name: row[name] for name in checker.PLANNED}
        jobs.append(job)
        if row["air_time_min"] is None:
            note = {"at": START, "what": "cancel", "author": "airline", "reason": "no air time"}
            job.update(state="cancelled", run=0, runs=[], trail=[note], finished_at=START)
            continue
        origin, tail = row["origin"], row["aircraft"] or ""
        agent = min(range(4), key=lambda n: agents[origin, n])
        at = max(job["due_at"], runway[origin], agents[origin, agent], aircraft[tail])
        left = at + ceil(300_000 / SPEED)
        back = left + ceil((2 * row["air_time_min"] + 60) * 60_000 / SPEED)
        permits = {f"runway:{origin}": "", f"agents:{origin}": str(agent)}
        if tail:
            permits[f"aircraft:{tail}"] = ""
            aircraft[tail] = back
        runway[origin], agents[origin, agent] = at + ceil(75_000 / SPEED), left
        job["runs"] = [{**a_run(at, left, back, permits), "due_at": job["due_at"]}]
        job["finished_at"] = back
        landing = a_job(f"landing-{len(jobs)}", back)
        landing.update(kind="land", args={"flight": f"{job['id']}:1"}, finished_at=back)
        landing["runs"] = [a_run(back, None, back, {})]
        jobs.append(landing)
    return jobs


def a_job(name: str, due_at: int) -> Json:
    return {"id": name, "state": "succeeded", "due_at": due_at, "run": 1, "trail": []}


def a_run(claimed: int, handed: int | None, ended: int, permits: dict[str, str]) -> Json:
    times = {"due_at": claimed, "claimed_at": claimed, "handed_at": handed, "ended_at": ended}
    return {"run": 1, **times, "outcome": "succeeded", "permits": permits}


ROWS = [json.loads(line) for line in DAY.read_text().splitlines()]
GOOD = World(ROWS)
FLIES = "US1117"
FLIES_LATER = "UA1018"
CANCELLED = "UA719"


@pytest.fixture
def world() -> World:
    return deepcopy(GOOD)


def test_good_history_of_the_whole_day_has_no_violation(world: World) -> None:
    assert world.violations() == []


def test_checker_imports_only_the_standard_library() -> None:
    tree = ast.parse((EXAMPLE / "checker.py").read_text())
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported <= sys.stdlib_module_names


def lose_a_flight(world: World) -> None:
    world.jobs.remove(world.flight(FLIES_LATER))


def leave_one_unfinished(world: World) -> None:
    job = world.flight(FLIES)
    job.update(state="awaiting", finished_at=None)
    job["runs"][0].update(ended_at=None, outcome="")


def let_one_die(world: World) -> None:
    job = world.flight(FLIES)
    job["state"] = "dead"
    job["runs"][0]["outcome"] = "dead"


def double_a_flight(world: World) -> None:
    world.jobs.append({**deepcopy(world.flight(FLIES)), "id": "another"})


def invent_a_flight(world: World) -> None:
    job = deepcopy(world.flight(CANCELLED))
    job["args"]["flight"] = "XX1"
    world.jobs.append(job)


def invent_a_kind(world: World) -> None:
    world.jobs.append({**deepcopy(world.flight(FLIES)), "kind": "joyride"})


def change_the_aircraft(world: World) -> None:
    world.flight(FLIES)["args"]["aircraft"] = "N1"


def leave_twice(world: World) -> None:
    job = world.flight(FLIES)
    again = deepcopy(job["runs"][0])
    again.update(run=2, claimed_at=again["ended_at"], handed_at=again["ended_at"] + 1)
    again["ended_at"] += 100_000
    job["runs"].append(again)


def leave_though_cancelled(world: World) -> None:
    job = world.flight(CANCELLED)
    start = job["due_at"]
    job["runs"] = [a_run(start, start + 1, start + 2, {"agents:EWR": "0"})]


def cancel_without_saying_why(world: World) -> None:
    world.flight(CANCELLED)["trail"][0]["reason"] = ""


def leave_a_millisecond_early(world: World) -> None:
    job = world.flight(FLIES)
    job["runs"][0]["claimed_at"] = job["runs"][0]["due_at"] - 1


def put_off_the_due_moment(world: World) -> None:
    world.flight(FLIES_LATER)["runs"][0]["due_at"] -= 3


def bring_the_due_moment_of_a_cancelled_flight_forward(world: World) -> None:
    world.flight(CANCELLED)["due_at"] -= 3


def leave_again_before_it_is_due_again(world: World) -> None:
    job = world.flight(FLIES)
    lost = deepcopy(job["runs"][0])
    lost.update(claimed_at=lost["due_at"], handed_at=None, ended_at=lost["due_at"], outcome="lost")
    job["runs"][0].update(run=2, due_at=job["runs"][0]["claimed_at"] + 1)
    job["runs"].insert(0, lost)


def put_an_aircraft_in_two_places(world: World) -> None:
    spans = defaultdict(list)
    for job in world.jobs:
        if job["kind"] == "depart" and job["runs"]:
            spans[job["args"]["aircraft"]].append(job)
    first, second, *_ = next(jobs for jobs in spans.values() if len(jobs) > 1)
    first["runs"][0]["ended_at"] = second["runs"][0]["claimed_at"] + 1


def fly_without_the_lock(world: World) -> None:
    job = world.flight(FLIES)
    del job["runs"][0]["permits"][f"aircraft:{job['args']['aircraft']}"]


def come_back_too_soon(world: World) -> None:
    world.flight(FLIES)["runs"][0]["ended_at"] -= 2_000


def never_land(world: World) -> None:
    world.jobs.remove(world.landing_of(world.flight(FLIES)))


def land_what_never_left(world: World) -> None:
    landing = deepcopy(world.landing_of(world.flight(FLIES)))
    landing["args"]["flight"] = "nobody:1"
    world.jobs.append(landing)


def crowd_a_runway(world: World) -> None:
    first, second = [
        job["runs"][0]
        for job in world.jobs
        if job["kind"] == "depart" and job["args"]["origin"] == "EWR" and job["runs"]
    ][:2]
    first["claimed_at"] = second["claimed_at"] - ceil(75_000 / SPEED) + 1


def share_an_agent(world: World) -> None:
    first, second = [
        job["runs"][0]
        for job in world.jobs
        if job["kind"] == "depart" and job["args"]["origin"] == "JFK" and job["runs"]
    ][:2]
    second["permits"]["agents:JFK"] = first["permits"]["agents:JFK"]
    first["handed_at"] = second["claimed_at"] + 1


def call_a_fifth_agent(world: World) -> None:
    job = world.flight(FLIES)
    job["runs"][0]["permits"]["agents:EWR"] = "fifth"


def leave_without_an_agent(world: World) -> None:
    del world.flight(FLIES)["runs"][0]["permits"]["agents:EWR"]


def drop_a_malformed_row(world: World) -> None:
    world.rows.append(b'{"flight": "UA1"}')


def refuse_a_good_row(world: World) -> None:
    world.refused.append(1)


def contradict_a_row_in_silence(world: World) -> None:
    world.rows.append(json.dumps({**ROWS[0], "air_time_min": 1}).encode())


def break_a_line_of_the_history(world: World) -> None:
    del world.jobs[0]["runs"][0]["claimed_at"]


def end_before_the_start(world: World) -> None:
    run = world.flight(FLIES)["runs"][0]
    run["claimed_at"] = run["handed_at"] + 1


FAULTS: list[tuple[Callable[[World], None], str]] = [
    (lose_a_flight, "lost"),
    (leave_one_unfinished, "wrong end"),
    (let_one_die, "wrong end"),
    (double_a_flight, "doubled"),
    (invent_a_flight, "from nowhere"),
    (invent_a_kind, "from nowhere"),
    (change_the_aircraft, "altered"),
    (leave_twice, "not once"),
    (leave_though_cancelled, "not once"),
    (cancel_without_saying_why, "no trail"),
    (leave_a_millisecond_early, "too early"),
    (put_off_the_due_moment, "wrong moment"),
    (bring_the_due_moment_of_a_cancelled_flight_forward, "wrong moment"),
    (leave_again_before_it_is_due_again, "too early"),
    (put_an_aircraft_in_two_places, "two places"),
    (fly_without_the_lock, "no lock"),
    (come_back_too_soon, "back too soon"),
    (never_land, "landing"),
    (land_what_never_left, "from nowhere"),
    (crowd_a_runway, "runway"),
    (share_an_agent, "agents"),
    (call_a_fifth_agent, "agents"),
    (leave_without_an_agent, "agents"),
    (drop_a_malformed_row, "dropped"),
    (refuse_a_good_row, "refused"),
    (contradict_a_row_in_silence, "dropped"),
    (break_a_line_of_the_history, "unreadable"),
    (end_before_the_start, "disorder"),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("spoil", "rule"), FAULTS, ids=[spoil.__name__ for spoil, _ in FAULTS])
def test_planted_fault_is_named(world: World, spoil: Callable[[World], None], rule: str) -> None:
    spoil(world)
    assert rule in {violation.rule for violation in world.violations()}


def test_reported_malformed_row_is_no_violation(world: World) -> None:
    world.rows += [b"not JSON", b'{"flight": "UA1"}', b"[]", b"null", b"1"]
    count = len(ROWS)
    world.refused += range(count + 1, count + 6)
    assert world.violations() == []


def test_flight_whose_first_run_was_lost_is_no_violation(world: World) -> None:
    job = world.flight(FLIES)
    landing, run = world.landing_of(job), job["runs"][0]
    lost = {**deepcopy(run), "handed_at": None, "ended_at": run["claimed_at"], "outcome": "lost"}
    later = ceil(75_000 / SPEED)
    again = {name: run[name] + later for name in ("due_at", "claimed_at", "handed_at", "ended_at")}
    job["runs"] = [lost, {**run, **again, "run": 2}]
    job.update(run=2, due_at=again["due_at"], finished_at=again["ended_at"])
    landing["args"]["flight"] = f"{job['id']}:2"
    assert world.violations() == []


def test_row_reported_twice_is_one_flight(world: World) -> None:
    world.rows.append(json.dumps(ROWS[0]).encode())
    assert world.violations() == []


def test_command_prints_each_violation_and_exits_with_one(world: World, tmp_path: Path) -> None:
    lose_a_flight(world)
    crowd_a_runway(world)
    history = tmp_path / "history.jsonl"
    history.write_text("\n".join(json.dumps(job) for job in world.jobs))
    said = subprocess.run(
        [sys.executable, EXAMPLE / "checker.py", history, DAY, "--speed", str(SPEED)],
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert said.returncode == 1
    assert "violation: lost: UA1018 EWR 2013-01-15T05:25:00-05:00 of line 2" in said.stdout
    assert "violation: runway: EWR" in said.stdout
    assert said.stderr == ""


def test_command_exits_with_zero_on_a_good_history(world: World, tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    history.write_text("\n".join(json.dumps(job) for job in world.jobs))
    assert checker.main([str(history), str(DAY), "--speed", str(SPEED)]) == 0
