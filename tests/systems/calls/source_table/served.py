"""`headway serve --system calls` as a process that can be killed and restarted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx

from headway.runtime.timing import REAL
from tests.client.server_process import LIMIT_S, free_port


class Served:
    """The command, with a headway.toml in its folder.

    Args:
        folder: working folder, with the store and the log.
        settings: content of headway.toml.
    """

    def __init__(self, folder: Path, settings: str) -> None:
        folder.mkdir()
        (folder / "headway.toml").write_text(settings)
        self._folder = folder
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Start the process, and wait until it answers."""
        self._begin()
        end = REAL.monotonic() + LIMIT_S
        async with httpx.AsyncClient(base_url=self.url) as http:
            while True:
                assert self._process is not None
                assert self._process.poll() is None, self.log
                assert REAL.monotonic() < end, self.log
                try:
                    await http.get("/healthz", timeout=1.0)
                except httpx.TransportError:
                    # There is no notification when another process starts to listen.
                    await REAL.pause(0.05)
                else:
                    return

    def _begin(self) -> None:
        words = [sys.executable, "-m", "headway", "serve", "--system", "calls"]
        words += ["--store", "sqlite:///jobs.db", "--port", str(self._port)]
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                words,
                cwd=self._folder,
                stdout=log,
                stderr=log,
                env={**os.environ, "HEADWAY_LOG_LEVEL": "info"},
            )

    async def kill(self) -> None:
        """Kill the process as a power cut would, and restart it."""
        self.stop()
        await self.start()

    def stop(self) -> None:
        """Kill the process as a power cut would."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(LIMIT_S)

    async def ask(self, method: str, path: str, body: object = None) -> httpx.Response:
        """Send a request."""
        async with httpx.AsyncClient(base_url=self.url, timeout=LIMIT_S) as http:
            return await http.request(method, path, json=body)

    @property
    def log(self) -> str:
        return (self._folder / "server.log").read_text(errors="replace")
