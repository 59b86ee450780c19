"""`headway serve` as a process that can be killed and started again at the same address."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Self

import httpx

from headway.runtime.timing import REAL

LIMIT_S = 240.0


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


class ServerProcess:
    """A server on a store; a context manager.

    Args:
        store: URL of the store.
        folder: working folder, which also contains the log.
    """

    def __init__(self, store: str, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{self._port}"

    def start(self) -> Self:
        """Start the server, and wait until it responds."""
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "headway", "serve", "--store", self._store),
                    *("--port", str(self._port)),
                ],
                cwd=self._folder,
                stdout=log,
                stderr=log,
                env={**os.environ, "HEADWAY_LOG_LEVEL": "warning"},
            )
        end = REAL.monotonic() + LIMIT_S
        while True:
            assert self._process.poll() is None, self.log
            assert REAL.monotonic() < end, self.log
            try:
                httpx.get(f"{self.url}/healthz", timeout=1.0)
            except httpx.TransportError:
                # No event reports that another process listens.
                self._pause()
            else:
                return self

    def kill(self) -> None:
        """Kill the server, as a power cut would."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(LIMIT_S)

    @property
    def log(self) -> str:
        return (self._folder / "server.log").read_text(errors="replace")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(LIMIT_S)

    def _pause(self) -> None:
        assert self._process is not None
        try:
            self._process.wait(0.05)
        except subprocess.TimeoutExpired:
            return
