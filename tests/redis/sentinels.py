"""Sentinels for tests, which watch a master and promote its replica."""

from __future__ import annotations

import signal

from tests.servers.process import ServerProcess
from tests.servers.redis import RedisServer, server_binary

SERVICE = "calls"
"""The name of the master for the sentinels."""


class Sentinel(ServerProcess):
    """One sentinel.

    Args:
        master: the master to watch.
        quorum: number of sentinels that must consider it down.
    """

    def __init__(self, master: RedisServer, quorum: int = 1) -> None:
        super().__init__("sentinel", ready=r"Sentinel ID is", last_signal=signal.SIGKILL)
        self._master = master.port
        self._quorum = quorum

    def _command(self) -> list[str]:
        file = self.folder / "sentinel.conf"
        file.write_text(
            f"port {self.port}\n"
            "bind 127.0.0.1\n"
            f"dir {self.folder}\n"
            f"sentinel monitor {SERVICE} 127.0.0.1 {self._master} {self._quorum}\n"
            f"sentinel down-after-milliseconds {SERVICE} 500\n"
            f"sentinel failover-timeout {SERVICE} 2000\n"
        )
        return [str(server_binary()), str(file), "--sentinel"]

    @property
    def url(self) -> str:
        """URL of the sentinel itself."""
        return f"redis://127.0.0.1:{self.port}"
