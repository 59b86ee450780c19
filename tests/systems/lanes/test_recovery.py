"""Server processes and workers that are killed: pulled jobs without an ack are returned."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from examples.lanes.database import Database
from tests.cli.test_serve import serving
from tests.cli.test_worker import COMMAND, LIMIT_S, started, until
from tests.systems.lanes.queue import calling

ROOT = Path(__file__).resolve().parents[3]
SYSTEM = ("--system", "lanes")
EXAMPLE = """
import headway as hw
from examples.lanes.app import TYPES
from examples.lanes.world import world_from

app = hw.App(name="lanes example")
app.lane("enrich", target="5m", concurrency=2, lease="2s")
for module in TYPES:
    module.declare(app, world_from())
"""
"""The example, but jobs held by a killed process are returned quickly."""


@pytest.mark.slow
async def test_killed_server_loses_nothing_that_it_acknowledged() -> None:
    with serving(*SYSTEM) as (process, url, _):
        async with calling(url) as queue:
            made = [await queue.enqueue(payload={"n": n}) for n in range(20)]
            done, held = await queue.pull(max=2, lease="1s")
            await queue.said("/ack", done)
        process.kill()
        process.wait(LIMIT_S)
    with serving(*SYSTEM) as (_, url, _):
        async with calling(url) as queue:
            again = await queue.said("/ack", done)
            assert (again["answer"], again["status"]) == ("already", "done")
            left = await queue.pull(max=18, worker="another")
            assert [job["job_id"] for job in left] == made[2:]
            # Its lease was not extended: the job is handed out again after the lease expires.
            (back,) = await queue.pull(worker="another", wait="20s")
            assert (back["job_id"], back["run"], back["attempt"]) == (held["job_id"], 2, 2)
            late = await queue.say("/ack", held)
            assert (late.status_code, late.json()["code"]) == (409, "lease_lost")
            for job in (*left, back):
                await queue.said("/ack", job, worker="another")
            assert (await queue.lane())["statuses"]["done"] == 20


@pytest.mark.slow
async def test_worker_that_continues_after_a_server_restart_still_holds_its_job() -> None:
    with serving(*SYSTEM) as (process, url, _):
        async with calling(url) as queue:
            await queue.enqueue()
            (job,) = await queue.pull(lease="1m")
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0
    with serving(*SYSTEM) as (_, url, _):
        async with calling(url) as queue:
            assert (await queue.said("/extend", job, lease="1m"))["cancel"] is False
            assert (await queue.said("/ack", job))["status"] == "done"


@pytest.mark.slow
async def test_jobs_of_a_dead_worker_are_requeued_and_extended_ones_stay() -> None:
    with serving(*SYSTEM) as (_, url, _):
        async with calling(url) as queue:
            for _ in range(2):
                await queue.enqueue()
            (dead,) = await queue.pull(max=1, worker="dead", lease="1s")
            (alive,) = await queue.pull(max=1, worker="alive", lease="1s")
            await queue.said("/extend", alive, worker="alive", lease="1m")
            (back,) = await queue.pull(worker="third", wait="20s")
            assert (back["job_id"], back["run"]) == (dead["job_id"], 2)
            assert await queue.pull(worker="third", wait="1ms") == []
            assert (await queue.said("/ack", alive, worker="alive"))["status"] == "done"


@pytest.fixture
def example(folder: Path) -> str:
    """Write the example's App to a file in the working folder."""
    Path(folder, "app.py").write_text(EXAMPLE, encoding="utf-8")
    return "app.py"


@pytest.mark.slow
async def test_jobs_of_http_producers_are_done_by_supervised_workers_of_the_example(
    folder: Path, example: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real program: kinds checked at enqueue, two worker processes, one of them killed."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    database = Database(str(folder / "lanes-app.db"))
    with database.write() as db:
        db.execute("INSERT INTO board (id, title) VALUES (1, 'Tea')")
        db.executemany(
            "INSERT INTO card (board, author, text, at) VALUES (1, 'Ada', ?, '2026')",
            [(f"Card {n}.",) for n in range(50)],
        )
    app = ("--app", example)
    worker = ("worker", example, "--processes", "2", "--unknown-kinds", "dead")
    with serving(*SYSTEM, *app) as (_, url, _), started(*worker) as workers:
        async with calling(url) as queue:
            refused = await queue.post("/enqueue", lane="enrich", type="close_board", payload={})
            assert (refused.status_code, refused.json()["code"]) == (422, "invalid_arguments")
            unknown = await queue.enqueue("enrich", type="make_coffee")
            summary = await queue.enqueue(
                "enrich", type="ai_summarize_board", payload={"board": 1, "sentences": 1}
            )
            until(lambda: summed_up(database))
            victim = psutil.Process(workers.pid).children()[0]
            os.kill(victim.pid, signal.SIGKILL)
            made = [await queue.enqueue("enrich", type="noop") for _ in range(100)]
            close = await queue.enqueue("enrich", type="close_board", payload={"board": 1})

            async def ended() -> int:
                return (await queue.lane("enrich"))["statuses"]["done"]

            while await ended() < len(made) + 2:
                assert workers.poll() is None
            assert await queue.status(close) == "done"
            assert (await queue.get(f"/jobs/{summary}"))["result"].startswith("Card")
            # The killed worker may have held it: then it returns after its back-off.
            while not (rows := (await queue.get("/dead"))["rows"]):
                assert workers.poll() is None
            (dead,) = rows
            assert (dead["job_id"], dead["attempts"]) == (unknown, 1)
            assert dead["reason"] == (
                "unknown_kind: this worker has no handler for the kind 'make_coffee'"
            )
        workers.send_signal(signal.SIGTERM)
        _, err = workers.communicate(timeout=LIMIT_S)
    assert "worker process died" in err
    enrich = latency_of("enrich")
    assert (enrich["target_ms"], enrich["starts"]) == (300_000, 100)


def summed_up(database: Database) -> bool:
    with closing(sqlite3.connect(database.path)) as db:
        return db.execute("SELECT summary FROM board").fetchone()[0] != ""


def latency_of(lane: str) -> Any:
    """Return what the command shows of a lane."""
    line = [*COMMAND, "lanes", "--latency", "--lane", lane, "--json"]
    shown = subprocess.run(line, check=True, capture_output=True, timeout=LIMIT_S)
    (found,) = json.loads(shown.stdout)["lanes"]
    return found
