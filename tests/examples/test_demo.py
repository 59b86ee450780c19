from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from examples.demo.limits import limits
from examples.demo.verdict import SERVED, departures_violations
from examples.departures.__main__ import DAY
from headway.lab.history import History, read_into
from headway.lab.invariants import check
from headway.stores.open import open_store

REPOSITORY = Path(__file__).parents[2]
SPEED = 1200.0
LIMIT_S = 240  # long, so that a busy machine does not fail the test
PROGRAM = [sys.executable, "-m", "examples.demo", "--plain", "--speed", f"{SPEED:g}"]


@contextmanager
def started(*arguments: str) -> Generator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*PROGRAM, *arguments],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read_until(process: subprocess.Popen[str], pattern: str) -> str:
    """Return the output up to the first line that matches the pattern."""
    assert process.stdout is not None
    printed = ""
    for line in process.stdout:
        printed += line
        if re.search(pattern, line):
            return printed
    pytest.fail(f"it ended without {pattern}: {printed}")


class Ran:
    """A short run: its output, its exit code, and its files."""

    def __init__(self, *arguments: str) -> None:
        with started(*arguments) as process:
            self.printed, _ = process.communicate(timeout=LIMIT_S)
            self.code = process.returncode
        folder = re.search(r"beside it is in (\S+)", self.printed)
        self.folder = Path(folder[1]) if folder else Path()

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder / 'demo.db'}"

    @property
    def history(self) -> list[str]:
        return (self.folder / "history.jsonl").read_text().splitlines()


@pytest.fixture(scope="module")
def ran() -> Ran:
    return Ran("--for", "8")


@pytest.mark.slow
def test_demo_shows_real_work_in_all_systems_and_exits_by_itself(ran: Ran) -> None:
    assert ran.code == 0, ran.printed
    assert "jobs checked: 0 violations" in ran.printed
    rows = re.findall(r"│ (\w+) +│ (\d+) .*│ +0 │", ran.printed)
    did = {system: int(count) for system, count in rows}
    assert did.keys() == {
        "departures",
        "calls",
        "field_service",
        "lanes",
        "notifications",
        "automations",
    }
    assert did["departures"] > 10
    assert min(did.values()) > 0
    assert re.search(r"automations: \d sessions run, \d wait, [1-9]\d* done", ran.printed)
    assert re.search(r"why: \S+ .*blocked: ", ran.printed)
    assert re.search(r"agents:EWR \d of 4", ran.printed)
    assert re.search(
        r"send_email .* [1-9]\d* done .*; starts in \d+\.\d s, target 5 s", ran.printed
    )
    served = re.findall(r"(?:server is|again at) (http://127\.0\.0\.1:\d+)", ran.printed)
    assert len(served) == 2
    assert len(set(served)) == 1


def rules(ran: Ran, history: list[str]) -> set[str]:
    found = departures_violations(DAY.read_bytes().splitlines(), history, SPEED)
    return {line.partition(":")[0] for line in found}


def altered(ran: Ran, state: str, **changes: Any) -> list[str]:
    """Return the history with one flight in this state changed."""
    lines = ran.history
    for place, line in enumerate(lines):
        job = json.loads(line)
        if job.get("kind") == "depart" and job["state"] == state and job["args"]["aircraft"]:
            for name, change in changes.items():
                change(job) if name == "job" else job.update({name: change})
            lines[place] = json.dumps(job)
            return lines
    pytest.fail(f"no flight is {state}")


def hurry(job: dict[str, Any]) -> None:
    job["runs"][0]["claimed_at"] = job["due_at"] - 1


def lose_its_agent(job: dict[str, Any]) -> None:
    job["runs"][0]["permits"] = {}


@pytest.mark.slow
def test_unfinished_day_is_checked_and_its_violations_are_found(ran: Ran) -> None:
    assert rules(ran, ran.history) == set()
    flights = [line for line in ran.history if json.loads(line).get("kind") == "depart"]
    assert "lost" in rules(ran, flights[1:])
    assert "too early" in rules(ran, altered(ran, "awaiting", job=hurry))
    assert {"agents", "no lock"} <= rules(ran, altered(ran, "awaiting", job=lose_its_agent))
    assert "no trail" in rules(ran, altered(ran, "cancelled", trail=[]))


@pytest.mark.slow
async def test_limits_of_the_checker_are_those_of_the_demo(ran: Ran) -> None:
    store = open_store(ran.url)
    history = History(start_at=0)
    await read_into(history, store)
    await store.close()
    history.jobs = [job for job in history.jobs if job.lane not in SERVED]
    history.sent = {job.id for job in history.jobs}
    assert check(history, limits(SPEED)) == []
    assert {one.rule for one in check(history, limits(SPEED / 8))} == {"rate"}
    templates = {use.template for job in history.jobs for use in job.gates}
    assert templates == limits(SPEED).gates.keys()


@pytest.mark.slow
def test_summary_as_json_is_the_only_output() -> None:
    command = [*PROGRAM, "--for", "4", "--json"]
    done = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["violations"] == 0
    assert [one["violations"] for one in summary["systems"]] == [[]] * 6
    assert all(one["did"] for one in summary["systems"])
    assert "departures: " in done.stderr


@pytest.mark.slow
def test_interrupt_ends_the_demo_gracefully_with_its_summary() -> None:
    with started() as process:
        read_until(process, r"departures: [1-9]\d* left")
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, rest
    assert "0 violations" in rest


@pytest.mark.slow
def test_store_in_use_is_refused(ran: Ran) -> None:
    again = Ran("--for", "1", "--store", ran.url)
    assert again.code == 2
    assert "already has jobs" in again.printed


@pytest.mark.slow
def test_another_kind_of_store_is_refused() -> None:
    other = Ran("--store", "memory://")
    assert other.code == 2
    assert "embedded store" in other.printed
