"""A real Apache Kafka for tests: one node, both broker and controller (KRaft)."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.servers.brokers.java import jars, java
from tests.servers.process import ServerFailed, ServerProcess, free_port

# Read once, as for the other servers.
GIVEN_ADDRESS = os.environ.get("HEADWAY_TEST_KAFKA")

_LIMIT = 180.0  # seconds: 10 on a quiet machine, 40 on a busy one

# Only warnings, and the line that says it accepts connections.
_LOGGED = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
)

_CLUSTER = "aGVhZHdheS10ZXN0cy0xMg"  # 16 bytes in base64, as the format command requires


@dataclass(frozen=True, slots=True)
class GivenKafka:
    """A broker that runs outside the test process: tests can use it but not stop it."""

    address: str


class KafkaServer(ServerProcess):
    """A broker of our own in its own folder; a context manager.

    Args:
        settings: entries of server.properties, such as `{"message.max.bytes": "2000000"}`.

    Raises:
        JavaMissing: Java is not installed.
        ServiceMissing: the jars are not available.
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._java = java()
        self._jars = jars("kafka")
        super().__init__(
            "kafka", ready=r"Kafka Server started", last_signal=signal.SIGKILL, limit=_LIMIT
        )
        self._settings = dict(settings or {})
        self._controller_port = 0

    @property
    def address(self) -> str:
        """Return the address that clients use as `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    def _command(self) -> list[str]:
        # Kept across restarts, like the first port.
        self._controller_port = self._controller_port or free_port()
        broker, controller = f"127.0.0.1:{self.port}", f"127.0.0.1:{self._controller_port}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{broker},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{broker}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self.folder / "data"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self._settings,
        }
        file = self.folder / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        if not (self.folder / "data").exists():
            self._format(file)
        return [*self._run("-Xmx512m"), "kafka.Kafka", str(file)]

    def _format(self, file: Path) -> None:
        """Prepare the folder for data: a broker does not start without this."""
        tool = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(file)]
        done = subprocess.run(
            [*self._run("-Xmx256m"), *tool],
            check=False,
            capture_output=True,
            text=True,
            timeout=_LIMIT,
        )
        if done.returncode:
            message = f"kafka could not format its folder: {done.stdout}{done.stderr}"
            raise ServerFailed(message)

    def _run(self, memory: str) -> list[str]:
        return [str(self._java), memory, *_LOGGED, "-cp", f"{self._jars}/*"]
