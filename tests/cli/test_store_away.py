"""Processes started while their store is unreachable wait for it, and report that they do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from headway.cli.commands.worker import TETHER
from tests.cli.conftest import Headway
from tests.servers.fixtures import made
from tests.servers.postgres import PostgresServer
from tests.servers.process import ServerProcess, free_port
from tests.servers.redis import RedisServer

pytestmark = pytest.mark.usefixtures("empty_app")
COMMANDS = {
    "worker": (["worker", "store_away_empty.py"], "worker starts"),
    "one of several workers": (["worker", "store_away_empty.py", f"{TETHER}=0"], "worker starts"),
    "run": (["run", "store_away_empty.py"], "worker starts"),
    "serve": (["serve", "--port", "0"], "server listens"),
    "serve that works": (
        ["serve", "--app", "store_away_empty.py", "--port", "0", "--work"],
        "server listens",
    ),
    "dispenserd": (["dispenserd", "--port", "0"], "dispenserd listens"),
}


@contextmanager
def started(url: str, *line: str) -> Generator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "headway", *line],
        env={**os.environ, "HEADWAY_STORE": url, "HEADWAY_STORE_WAIT": "10m"},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def logged(process: subprocess.Popen[str], event: str) -> list[str]:
    """Return the events up to the given one, which must be logged before the process exits."""
    assert process.stderr is not None
    events: list[str] = []
    for line in process.stderr:
        events.append(json.loads(line)["event"])
        if event in events[-1]:
            return events
    raise AssertionError(events)


@pytest.mark.slow
@pytest.mark.parametrize("make", [PostgresServer, RedisServer], ids=["postgres", "redis"])
def test_every_program_waits_for_an_unreachable_store_at_start(
    make: type[PostgresServer | RedisServer], folder: Path
):
    server: ServerProcess
    with made(make) as server, ExitStack() as stack:
        url = server.url
        server.stop()
        processes = [
            (stack.enter_context(started(url, *line)), event) for line, event in COMMANDS.values()
        ]
        for process, _ in processes:
            first = logged(process, "again in 0.05 s")[-1]
            assert first.startswith("opening the store: ")
            assert f"127.0.0.1:{server.port}" in first
            assert len(logged(process, "again in 0.2 s")) == 2
        server.start()
        for process, event in processes:
            logged(process, event)


@pytest.mark.parametrize("line", [line for line, _ in COMMANDS.values()], ids=list(COMMANDS))
def test_program_exits_if_the_store_stays_unreachable_for_the_configured_time(
    line: list[str], headway: Headway, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HEADWAY_STORE", f"redis://127.0.0.1:{free_port()}")
    monkeypatch.setenv("HEADWAY_STORE_WAIT", "0s")
    ran = headway(*line)
    assert (ran.code, "again in" in ran.err) == (4, False)


def test_invalid_time_to_wait_for_the_store_is_refused(
    headway: Headway, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HEADWAY_STORE_WAIT", "soon")
    ran = headway("worker", "store_away_empty.py")
    assert ran.code == 2
    assert "HEADWAY_STORE_WAIT" in ran.err
