"""Sentinels of our own, which watch a master and make its replica the next one."""

from __future__ import annotations

import signal

from tests.servers.process import ServerProcess
from tests.servers.redis import RedisServer, server_binary

SERVICE = "calls"
"""The name under which they know the master."""


class Sentinel(ServerProcess):
    """One sentinel.

    Args:
        master: that it watches.
        quorum: how many sentinels must find it dead.
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
        """Of the sentinel itself."""
        return f"redis://127.0.0.1:{self.port}"
