"""A server process of our own: started, awaited, killed and restarted on the same data and port."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

LIMIT = 240.0
"""Seconds that a server may take to start or to stop."""

_TRIES = 5

# Stops the server and cleans up once the process that writes to it has exited for any reason.
_GUARD = """
pid=0
while read -r line; do pid=$line; done
if [ "$pid" != 0 ]; then kill -s "$1" "$pid"; fi 2>/dev/null
rm -rf "$0"
"""


class ServiceMissing(Exception):
    """A server is not available on this machine; the message says why."""


class ServerFailed(Exception):
    """A server did not start; the message contains its last output."""


class ServerProcess(ABC):
    """A server in its own process group; it is stopped when the process that started it exits.

    Args:
        name: name of its folder and thread.
        ready: text in the line that it prints once it accepts connections.
        last_signal: signal that stops it immediately, with all its children.
        limit: seconds that it may take to start or to stop.

    Attributes:
        folder: folder with all its files; removed when it is closed.
        port: port at 127.0.0.1; the same after a restart.
    """

    def __init__(
        self, name: str, *, ready: str, last_signal: signal.Signals, limit: float = LIMIT
    ) -> None:
        self.name = name
        self._limit = limit
        self.port = 0
        root = os.environ.get("PYTEST_DEBUG_TEMPROOT")
        self.folder = Path(tempfile.mkdtemp(prefix=f"headway-{name}-", dir=root))
        self._ready = re.compile(ready.encode())
        self._last_signal = last_signal
        self._process: subprocess.Popen[bytes] | None = None
        self._printed: deque[bytes] = deque(maxlen=40)
        self._reader: threading.Thread | None = None
        # A session of its own: Ctrl-C in a terminal must not stop it before the tests do.
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, str(self.folder), last_signal.name.removeprefix("SIG")],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    @abstractmethod
    def _command(self) -> Sequence[str]:
        """Return the command that starts it on `port`."""

    def _run_as(self) -> Mapping[str, object]:
        """Return further arguments of Popen."""
        return {}

    @property
    def pid(self) -> int:
        """Return the pid of the server's first process; 0 while it is not running."""
        running = self._process is not None and self._process.poll() is None
        return self._process.pid if running and self._process is not None else 0

    def start(self) -> Self:
        """Start the server unless it is running, on the same port as before.

        Raises:
            ServerFailed: it exited, or was not ready in time.
        """
        for _ in range(1 if self.port else _TRIES):
            if self.pid or self._start_once():
                return self
            self.port = 0
        message = f"{self.name} did not start: {self.printed}"
        raise ServerFailed(message)

    def _start_once(self) -> bool:
        self.port = self.port or free_port()
        self._printed.clear()
        process = subprocess.Popen(
            self._command(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **self._run_as(),  # type: ignore[call-overload]
        )
        self._process = process
        self._tell_guard(process.pid)
        up = threading.Event()
        self._reader = threading.Thread(
            target=self._read, args=(process, up), name=f"headway-{self.name}-log", daemon=True
        )
        self._reader.start()
        up.wait(self._limit)
        if process.poll() is None and any(map(self._ready.search, [*self._printed])):
            return True
        self.kill()
        return False

    def _read(self, process: subprocess.Popen[bytes], up: threading.Event) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self._printed.append(line)
                if self._ready.search(line):
                    up.set()
        process.wait()
        up.set()

    @property
    def printed(self) -> str:
        """Return the last lines that it printed."""
        return b"".join([*self._printed]).decode(errors="replace")

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, such as SIGSTOP, to the server's first process."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop the server gracefully; block until it has exited."""
        self.send_signal(number)
        self._wait()

    def kill(self) -> None:
        """Kill the server with SIGKILL, as a power cut does; block until it is gone."""
        self.send_signal(signal.SIGKILL)
        self._wait()

    def _wait(self) -> None:
        if self._process is None:
            return
        try:
            self._process.wait(self._limit)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(self._limit)
        if self._reader is not None:
            self._reader.join(self._limit)
        self._process = None
        self._tell_guard(0)

    def restart(self) -> None:
        """Stop the server if it is running, and start it on the same data and port."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop the server immediately, and remove its folder."""
        self.stop(self._last_signal)
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait(self._limit)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _tell_guard(self, pid: int) -> None:
        assert self._guard.stdin is not None
        self._guard.stdin.write(b"%d\n" % pid)
        self._guard.stdin.flush()

    def __enter__(self) -> Self:
        """Start the server."""
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        """Close the server, as `close` does."""
        self.close()


def free_port() -> int:
    """Return a port that is not in use.

    It is below the range of ephemeral ports: otherwise a client that keeps reconnecting to a
    stopped server could connect to itself and occupy the server's port.
    """
    draw = random.Random(os.urandom(8))
    for _ in range(1000):
        port = draw.randrange(15_000, 31_000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ServerFailed("no port is free")


def program(folder: str | None, name: str) -> Path | None:
    """Return a program in a folder, or on the search path without one; None if there is none."""
    found = shutil.which(name, path=folder) if folder else shutil.which(name)
    # Not resolved: Debian's server is a link to another program, which goes by the link's name.
    return Path(found).absolute() if found else None
