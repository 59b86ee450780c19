"""The command as a separate process: what a supervisor and a terminal see."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import psutil
import pytest

from headway.contract.store import Store
from headway.contract.views import LanesQuery, WorkersQuery
from tests.cli.conftest import Headway
from tests.cli.seeding import enqueue, new_job, with_store

APP = """
from __future__ import annotations
import asyncio
import headway as hw

app = hw.App()

@app.job(lane="calls")
async def call(job: hw.Job, phone: str):
    if phone == "bad":
        raise hw.Dead("bad number")

@app.job(lane="slow")
async def wait(job: hw.Job):
    await asyncio.Event().wait()
"""
KILLED = """
from __future__ import annotations
import asyncio
import os
from pathlib import Path
import headway as hw

app = hw.App()
app.lane("kill", lease="1s")

@app.job(lane="kill", retry=hw.Backoff(base="1ms", cap="1ms"))
async def hold(job: hw.Job):
    if job.run == 1:
        Path("holding").write_text(str(os.getpid()))
        os.replace("holding", "held")
        await asyncio.Event().wait()

@app.job(lane="kill")
async def quick(job: hw.Job): ...
"""
COMMAND = [sys.executable, "-m", "headway"]
LIMIT_S = 120
_LOOK_AGAIN = Event()


pytestmark = pytest.mark.usefixtures("empty_app")


@pytest.fixture(autouse=True)
def calls(folder: Path) -> None:
    folder.joinpath("worker_calls.py").write_text(APP)


@contextmanager
def started(*line: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process, and kill it at the end if it is still running."""
    process = subprocess.Popen(
        [*COMMAND, *line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def until(met: Callable[[], object]) -> None:
    """Poll, within a time limit, for something that another process does."""
    end = time.monotonic() + LIMIT_S
    while not met():
        assert time.monotonic() < end, "it did not happen"
        _LOOK_AGAIN.wait(0.02)


def workers() -> list[str]:
    """Return the names of live workers."""

    async def work(store: Store) -> list[str]:
        return [one.name for one in await store.read(WorkersQuery())]

    return with_store(work)


def count(state: str, lane: str) -> int:
    async def work(store: Store) -> int:
        (found,) = await store.read(LanesQuery(names=(lane,)))
        return found.counts.get(state, 0)

    return with_store(work)


def test_worker_drains_its_lanes_and_exits(headway: Headway):
    headway("send", "noop", "--count", "300")
    headway("send", "noop", "--lane", "other")
    ran = headway("worker", "worker_empty.py", "--drain", "--json")
    assert (ran.code, ran.document) == (0, {"settled": 300})
    assert count("succeeded", "main") == 300
    assert count("waiting", "other") == 1


@pytest.mark.parametrize(
    "line", [["worker"], ["worker", "--processes", "2"], ["run"], ["serve", "--work"]]
)
def test_jobs_are_not_claimed_without_an_app(headway: Headway, line: list[str]):
    headway("send", "call", "phone=good")
    ran = headway(*line)
    assert ran.code == 2
    assert "no App is named" in ran.err
    assert "set app in headway.toml" in ran.err
    (job,) = headway("jobs", "--json").document["jobs"]
    assert (job["state"], job["attempt"]) == ("waiting", 0)


def test_worker_runs_the_kinds_of_an_app_and_serves_all_its_lanes(headway: Headway):
    for phone in ("good", "bad"):
        headway("send", "call", f"phone={phone}", "--app", "worker_calls.py")
    ran = headway("worker", "worker_calls.py", "--drain", "--json", "--name", "first")
    assert (ran.code, ran.document) == (0, {"settled": 2})
    assert workers() == ["first"]
    jobs = headway("jobs", "--json").document["jobs"]
    assert [(job["state"], job["reason"]) for job in jobs] == [
        ("succeeded", ""),
        ("dead", "bad number"),
    ]


def test_job_of_an_unknown_kind_is_dead_at_once_on_request(headway: Headway):
    headway("send", "nobody_knows", "--lane", "calls")
    ran = headway("worker", "worker_calls.py", "--drain", "--json", "--unknown-kinds", "dead")
    assert (ran.code, ran.document) == (0, {"settled": 1})
    (job,) = headway("jobs", "--json").document["jobs"]
    assert (job["state"], job["attempt"]) == ("dead", 1)
    assert "no handler for the kind 'nobody_knows'" in job["reason"]


def test_drain_due_skips_jobs_not_yet_due(headway: Headway):
    headway("send", "noop", "--count", "3")
    headway("send", "noop", "--due", "1h")
    ran = headway("worker", "worker_empty.py", "--drain=due", "--json")
    assert (ran.code, ran.document) == (0, {"settled": 3})
    assert count("scheduled", "main") == 1


def test_drain_idle_skips_jobs_waiting_at_a_gate(headway: Headway):
    headway("send", "noop", "--count", "3")
    headway("send", "noop", "--lane", "closed")
    headway("pause", "lane:closed")
    ran = headway("worker", "worker_empty.py", "--drain=idle", "--lanes", "main,closed", "--json")
    assert (ran.code, ran.document) == (0, {"settled": 3})
    assert count("waiting", "closed") == 1


def test_drain_waits_for_jobs_due_later(headway: Headway):
    headway("send", "noop", "--due", "300ms")
    assert headway("worker", "worker_empty.py", "--drain", "--json").document == {"settled": 1}


def test_app_of_the_settings_is_used(headway: Headway, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HEADWAY_APP", "worker_calls.py")
    headway("send", "call", "phone=good")
    assert headway("worker", "--drain", "--json").document == {"settled": 1}


def test_named_store_overrides_the_apps_own(headway: Headway, folder: Path):
    folder.joinpath("worker_own.py").write_text(
        "import headway as hw\napp = hw.App('sqlite:///own.db')\n"
    )
    headway("send", "noop")
    assert headway("worker", "worker_own.py", "--drain", "--json").document == {"settled": 0}
    assert folder.joinpath("own.db").exists()
    ran = headway("worker", "worker_own.py", "--drain", "--json", "--store", "sqlite:///headway.db")
    assert ran.document == {"settled": 1}


def test_app_without_a_store_uses_the_one_in_the_settings_file(headway: Headway, folder: Path):
    folder.joinpath("worker_none.py").write_text("import headway as hw\napp = hw.App()\n")
    folder.joinpath("headway.toml").write_text('store = "sqlite:///told.db"\n')
    headway("send", "noop")
    assert headway("worker", "worker_none.py", "--drain", "--json").document == {"settled": 1}
    assert [file.name for file in folder.glob("*.db")] == ["told.db"]
    assert "HEADWAY_STORE" not in os.environ


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["nowhere.py"], "there is no file nowhere.py"),
        (["worker_empty.py", "--lanes", "a,a"], "'a' is named twice"),
        (["worker_empty.py", "--lanes", "a:0"], "weight"),
        (["--concurrency", "0"], "--concurrency"),
        (["--drain=now"], "--drain"),
        (["worker_empty.py", "--grace", "long"], "long"),
        (["worker_empty.py", "--lease", "48h"], "a worker's lease is"),
        (["--processes", "0"], "--processes"),
    ],
)
def test_worker_that_cannot_start_is_a_caller_error(headway: Headway, line: list[str], said: str):
    ran = headway("worker", *line)
    assert ran.code == 2
    assert said in ran.err
    assert ran.err.count("\n") == 1


def test_sigterm_lets_handlers_finish_and_a_second_one_hands_them_back(headway: Headway):
    headway("send", "wait", "--app", "worker_calls.py")
    with started("worker", "worker_calls.py", "--json") as process:
        until(lambda: count("running", "slow"))
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
    assert json.loads(out) == {"settled": 1}
    assert count("waiting", "slow") == 1
    assert headway("jobs", "--json").document["jobs"][0]["attempt"] == 0


@pytest.mark.slow
def test_several_processes_drain_and_exit(headway: Headway):
    headway("send", "noop", "--count", "3000")
    with started("worker", "worker_empty.py", "--drain", "--processes", "3") as process:
        assert process.wait(LIMIT_S) == 0
    assert count("succeeded", "main") == 3000


@pytest.mark.slow
def test_killed_process_is_restarted_and_all_exit_together():
    enqueue(new_job(lane="unserved"))
    with started("worker", "worker_empty.py", "--processes", "2", "--json") as process:
        parent = psutil.Process(process.pid)
        until(lambda: len(workers()) == 2)
        victim = parent.children()[0]
        victim.kill()
        until(lambda: len(workers()) == 3)
        assert len(parent.children()) == 2
        children = parent.children()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
    assert json.loads(out) == {"processes": 2, "restarts": 1}
    assert "worker process died" in err
    assert not any(child.is_running() for child in children)


@pytest.mark.slow
def test_jobs_of_a_killed_process_are_done_by_the_others(headway: Headway):
    """The child that runs a job is killed while its handler runs; a second run finishes the job."""
    Path("worker_kill.py").write_text(KILLED)
    headway("send", "hold", "--app", "worker_kill.py")
    headway("send", "quick", "--app", "worker_kill.py", "--count", "50")
    line = ["worker", "worker_kill.py", "--processes", "2", "--concurrency", "1", "--json"]
    with started(*line) as process:
        until(lambda: Path("held").exists())
        victim = int(Path("held").read_text())
        assert victim in {child.pid for child in psutil.Process(process.pid).children()}
        os.kill(victim, signal.SIGKILL)
        until(lambda: count("succeeded", "kill") == 51)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=LIMIT_S)
    assert json.loads(out) == {"processes": 2, "restarts": 1}
    (held,) = (one for one in headway("jobs", "--json").document["jobs"] if one["kind"] == "hold")
    assert held["run"] == 2
    job = headway("job", held["id"], "--json").document
    assert [run["outcome"] for run in job["runs"]] == ["lost", "succeeded"]


def test_children_exit_when_their_parent_is_killed():
    enqueue(new_job(lane="unserved"))
    with started("worker", "worker_empty.py", "--processes", "2") as process:
        until(lambda: len(workers()) == 2)
        children = psutil.Process(process.pid).children()
        process.kill()
        process.wait(LIMIT_S)
        _, alive = psutil.wait_procs(children, LIMIT_S)
    assert alive == []


@pytest.mark.slow
def test_processes_that_cannot_start_are_not_restarted():
    with started("worker", "nowhere.py", "--processes", "2") as process:
        _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 2
    assert "there is no file nowhere.py" in err


def test_run_works_until_stopped(headway: Headway):
    headway("send", "call", "phone=good", "--app", "worker_calls.py")
    with started("run", "worker_calls.py", "--json") as process:
        until(lambda: count("succeeded", "calls"))
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
    assert json.loads(out) == {"settled": 1}
