"""`headway dispenserd` as a process: what a kill leaves behind, and where it may listen."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from headway.core.errors import StoreUnavailable
from headway.systems.lanes import dispenserd
from tests.cli.conftest import Headway, folder, headway
from tests.systems.dispenserd.rig import serving

__all__ = ["folder", "headway"]

LIMIT_S = 120
EVERYWHERE = "0.0.0.0"  # noqa: S104  (it is refused)


@contextmanager
def running(*line: str) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """Run a process, and a client for it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "headway", "dispenserd", "--port=0", *line],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HEADWAY_LOG_FORMAT": "json"},
    )
    try:
        assert process.stderr is not None
        events = (json.loads(text) for text in process.stderr)
        url = next(event["url"] for event in events if event["event"] == "dispenserd listens")
        with httpx.Client(base_url=url, timeout=LIMIT_S) as http:
            yield process, http
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.slow
def test_scheduled_job_survives_a_kill_and_a_received_one_stays_received() -> None:
    with running() as (process, http):
        for number in range(20):
            said = http.post("/schedule", json={"message": f"job {number}", "lane": "video"})
            assert said.json()["code"] == 0
        for number in range(5):
            said = http.post("/receive_noblock", json={"lane": "video"})
            assert said.json()["message"] == f"job {number}"
        # A job listed after a receive was written before it: a single writer keeps their order.
        assert len(http.get("/jobs").json()["video"]) == 15
        http.post("/schedule", json={"message": "last", "lane": "video"})
        process.kill()
        process.wait(LIMIT_S)
    with running() as (_, http):
        listed = [job["message"] for job in http.get("/jobs").json()["video"]]
        assert listed == [*(f"job {number}" for number in range(5, 20)), "last"]
        received = [
            http.post("/receive_block", json={"lane": "video"}).json()["message"] for _ in listed
        ]
        assert received == listed


def test_stop_is_graceful() -> None:
    with running() as (process, http):
        assert http.get("/").json()["status"] == "ok"
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0


def test_start_beyond_loopback_must_be_requested(headway: Headway) -> None:
    ran = headway("dispenserd", "--host", EVERYWHERE, "--port", "0")
    assert ran.code == 2
    assert "no tokens" in ran.err
    assert "--exposed" in ran.err
    with running("--host", EVERYWHERE, "--exposed") as (_, http):
        assert http.get("/").json()["status"] == "ok"


async def test_job_whose_receipt_was_not_recorded_is_requeued_when_its_lease_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispenserd, "LEASE_MS", 1_000)
    url = f"sqlite:///{tmp_path}/queue.db"
    end = asyncio.Event()

    async def late(*_: object) -> object:
        await end.wait()
        message = "away"
        raise StoreUnavailable(message)

    async with serving(url) as rig:
        vars(rig.service.store)["settle"] = late
        await rig.schedule("a", priority=1)
        await rig.schedule("b", priority=2)
        assert (await rig.post("/receive_block"))["message"] == "a"
        async with serving(url) as other:
            # The order depends on whether the lease has expired by now.
            received = [(await other.post("/receive_block"))["message"] for _ in range(2)]
            assert sorted(received) == ["a", "b"]
        # Its settlement comes too late: another worker has the job, and nothing is written.
        del vars(rig.service.store)["settle"]
        end.set()
