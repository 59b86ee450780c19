"""The processes of `field_service` as an operator starts them: a server, and separate workers."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from tests.servers.process import free_port

SETTINGS = """
store = "{store}"
directory = "sqlite:///{folder}/directory.db"
public_url = "{url}"
log_level = "error"

[telephony.twilio]
account_sid = "{account_sid}"
auth_token = "{auth_token}"
base_url = "{base_url}"
timeout = "2s"

[field_service]
offer_timeout = "1500ms"
line_wait = "5s"
call_limit = "20s"
text_from = "{line}"
lines = {{ "{line}" = {channels} }}
"""
PATIENCE_S = 60.0


class Crew:
    """A server and its workers; each can be killed and is then restarted.

    Attributes:
        url: URL where the server listens while it runs.
    """

    def __init__(self, folder: Path, store: str, line: str, channels: int) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._folder = folder
        self._words = {"store": store, "folder": folder, "line": line, "channels": channels}
        self._processes: dict[str, Process] = {}

    async def start(self, carrier: Mapping[str, object], workers: int) -> None:
        """Start the server, then the workers.

        Args:
            carrier: account_sid, auth_token and base_url.
            workers: number of workers.
        """
        written = SETTINGS.format(url=self.url, **self._words, **carrier)
        (self._folder / "headway.toml").write_text(written)
        await self._begin("server")
        await self.answers()
        for number in range(workers):
            await self._begin(f"worker {number}")

    @property
    def names(self) -> list[str]:
        """Return the names of the processes."""
        return list(self._processes)

    async def kill(self, name: str) -> None:
        """Kill a process with -9 and replace it.

        Returns when a server answers again: on a busy machine each process would otherwise be
        killed before it has started, and nothing would be tested.
        """
        await self._end(name)
        await self._begin(name)
        if name == "server":
            await self.answers()

    async def close(self) -> None:
        """Kill all processes."""
        for name in self.names:
            await self._end(name)

    async def answers(self) -> None:
        """Return when the server answers.

        Raises:
            TimeoutError: it never does.
        """
        async with asyncio.timeout(PATIENCE_S), httpx.AsyncClient() as http:
            while True:
                try:
                    await http.get(f"{self.url}/healthz")
                except httpx.HTTPError:
                    await asyncio.sleep(0.05)
                else:
                    return

    async def ask(
        self, http: httpx.AsyncClient, method: str, path: str, body: Any = None
    ) -> httpx.Response:
        """Repeat a request until there is a reply; return the reply.

        Raises:
            TimeoutError: there is never a conclusive reply.
        """
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    reply = await http.request(method, self.url + path, json=body)
                except httpx.HTTPError:
                    await asyncio.sleep(0.05)
                    continue
                if not reply.is_server_error:
                    return reply
                await asyncio.sleep(0.05)

    async def _begin(self, name: str) -> None:
        system = ("--system", "field_service")
        words = ("worker", *system)
        if name == "server":
            words = ("serve", f"--port={self.port}", "--no-work", *system)
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "headway", *words),
                cwd=self._folder,
                stdout=log,
                stderr=log,
            )

    async def _end(self, name: str) -> None:
        process = self._processes[name]
        if process.returncode is None:
            os.kill(process.pid, signal.SIGKILL)
        await process.wait()
