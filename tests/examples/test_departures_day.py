"""The departures day, run by the command on an embedded store, and checked from its files."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import headway as hw
from examples.departures import checker
from examples.departures.__main__ import first_moment, main
from examples.departures.history import read_departures
from examples.departures.run import APP, LANES, STORE, Run
from examples.departures.summary import airport_day
from headway.contract.views import LanesQuery
from headway.runtime.timing import pause

DAY = Path(checker.__file__).parent / "departures-2013-01-15.jsonl"
FAST = "10000"
MALFORMED = ("this is no JSON", '{"flight": "UA1"}', '{"flight": 1}', "[]")


def write_morning(path: Path) -> list[dict[str, Any]]:
    """Write flights before 7:30 that return soon, one of them cancelled and one without aircraft.

    Each malformed line follows one of the first flights.
    """
    rows = [json.loads(line) for line in DAY.read_text().splitlines()]
    morning = [
        row
        for row in rows
        if row["due_at"] < "2013-01-15T07:30" and (row["air_time_min"] or 0) <= 90
    ]
    unassigned = {**morning[0], "flight": "XX1", "aircraft": None}
    morning.append(unassigned)
    lines = [json.dumps(row) for row in morning]
    for place, line in enumerate(MALFORMED):
        lines.insert(2 * place + 1, line)
    path.write_text("\n".join(lines) + "\n")
    return morning


@pytest.mark.slow
def test_morning_is_imported_dispatched_exported_and_verified(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    day, out = tmp_path / "morning.jsonl", tmp_path / "out"
    rows = write_morning(day)
    assert main([str(day), "--speed", FAST, "--out", str(out), "--plot", "svg"]) == 0
    said = capfd.readouterr()
    assert f"{len(rows)} rows, 4 malformed lines" in said.out
    assert ": 0 violations" in said.out
    for line in (2, 4, 6, 8):
        assert f"line {line}: " in said.err
    assert "<svg" in (out / "day.svg").read_text()
    with (out / "history.jsonl").open() as lines:
        departures = read_departures(lines, float(FAST))
    whole = airport_day("all", departures)
    assert whole.flights == len(rows)
    assert whole.cancelled == sum(row["air_time_min"] is None for row in rows) > 0
    assert whole.left == whole.flights - whole.cancelled


def test_repeated_import_creates_no_flight_twice(tmp_path: Path) -> None:
    day = tmp_path / "morning.jsonl"
    rows = write_morning(day)
    run = Run(day, float(FAST), tmp_path)
    run.import_rows(first_moment(day))
    run.import_rows(first_moment(day))
    again = json.loads(run.refused.read_text())
    assert (again["created"], again["existing"]) == (0, len(rows))


def test_file_without_flights_is_reported_and_nothing_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    day, out = tmp_path / "empty.jsonl", tmp_path / "out"
    day.write_text("\n".join(MALFORMED))
    assert main([str(day), "--out", str(out)]) == 2
    assert "contains no flight" in capsys.readouterr().err
    assert not (out / STORE).exists()


def test_missing_file_is_reported_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "none.jsonl"), "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.slow
def test_whole_day_is_dispatched_and_verified(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["--speed", FAST, "--out", str(tmp_path / "out"), "--plot", "png"]) == 0
    assert "894 flights, 881 landings: 0 violations" in capfd.readouterr().out


async def begin_and_kill(run: Run) -> None:
    """Start a worker, and kill it while flights are departing and others are in the air."""
    worker = start_worker(run)
    try:
        async with asyncio.timeout(120), hw.App(run.store) as app:
            while True:
                [lane] = await app.store.read(LanesQuery(names=("departures",)))
                if lane.counts.get("running", 0) >= 2 and lane.counts.get("awaiting", 0) >= 5:
                    break
                await pause(0.01)
    finally:
        worker.kill()
        worker.wait()


def start_worker(run: Run) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "headway", "worker", APP, "--lanes", LANES, "--drain"]
    return subprocess.Popen(command, env=run.environment)


@pytest.mark.slow
async def test_worker_killed_in_the_morning_loses_no_flight_and_repeats_none(
    tmp_path: Path,
) -> None:
    day = tmp_path / "morning.jsonl"
    write_morning(day)
    run = Run(day, 1_200, tmp_path)
    run.import_rows(first_moment(day))
    await begin_and_kill(run)
    assert start_worker(run).wait(timeout=240) == 0
    run.export()
    outcomes = [
        each["outcome"]
        for line in run.history.read_text().splitlines()
        for each in json.loads(line).get("runs", ())
    ]
    assert "lost" in outcomes
    assert run.check()
