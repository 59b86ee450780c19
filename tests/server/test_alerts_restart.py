"""Real servers: one that is killed and restarted continues with the alerts that it has reported."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import Process
from pathlib import Path

import httpx
import pytest

from headway.runtime.timing import REAL
from tests.servers.process import free_port

LIMIT_S = 150
SETTINGS = """
store = "sqlite:///jobs.db"

[alerts]
each = "100ms"
no_worker_for = "200ms"
"""


class Served:
    """`headway serve --system field_service --no-work` in a folder, with its own log."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.log = folder / f"{name}.log"
        self.port = free_port()
        self.process: Process | None = None

    async def start(self) -> None:
        line = ("serve", "--no-work", f"--port={self.port}", "--system", "field_service")
        with self.log.open("wb") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "headway", *line), cwd=self.folder, stdout=log, stderr=log
            )
        async with asyncio.timeout(LIMIT_S), httpx.AsyncClient() as http:
            while True:
                try:
                    await http.get(f"http://127.0.0.1:{self.port}/healthz")
                except httpx.TransportError:
                    assert self.process.returncode is None, self.log.read_text()
                    await REAL.pause(0.05)
                else:
                    return

    async def kill(self) -> None:
        if self.process is not None:
            if self.process.returncode is None:
                os.kill(self.process.pid, signal.SIGKILL)
            await self.process.wait()

    def reported(self) -> list[tuple[str, bool]]:
        """Return the subjects of `no_worker` alerts, and whether each was reported as recovered."""
        lines = [line for line in self.log.read_text().splitlines() if line.startswith("{")]
        reported = [one for one in map(json.loads, lines) if one.get("rule") == "no_worker"]
        return [(one["subject"], one["healed"]) for one in reported]

    async def wait_for_alert(self, subject: str, *, healed: bool) -> None:
        async with asyncio.timeout(LIMIT_S):
            while (subject, healed) not in self.reported():
                await REAL.pause(0.05)

    async def command(self, *line: str) -> None:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headway", *line),
            cwd=self.folder,
            stdout=asyncio.subprocess.DEVNULL,
        )
        assert await process.wait() == 0

    async def send(self, lane: str) -> None:
        """Send a job that no worker takes."""
        async with httpx.AsyncClient(timeout=LIMIT_S) as http:
            url = f"http://127.0.0.1:{self.port}/v1/jobs"
            reply = await http.post(url, json={"kind": "noop", "lane": lane})
            assert reply.is_success, reply.text


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("beside", [False, True], ids=["restarted", "beside"])
async def test_successor_of_a_killed_server_repeats_nothing_and_heals_what_ended(
    tmp_path: Path, beside: bool
):
    (tmp_path / "headway.toml").write_text(SETTINGS)
    first, second = Served(tmp_path, "first"), Served(tmp_path, "second")
    try:
        await first.start()
        if beside:
            await second.start()
        await first.send("mail")
        await first.wait_for_alert("mail", healed=False)
        # Once it reports another lane at a later look, its report of this one has been stored.
        await first.send("post")
        await first.wait_for_alert("post", healed=False)
        await first.kill()
        if not beside:
            await second.start()
        await second.send("other")
        await second.wait_for_alert("other", healed=False)
        # It knows that what it found in the same looks was already reported.
        assert ("mail", False) not in second.reported()
        await second.command("pause", "lane:mail")
        await second.wait_for_alert("mail", healed=True)
        assert [one for one in second.reported() if one[0] == "mail"] == [("mail", True)]
    finally:
        await first.kill()
        await second.kill()
