"""A real Apache Cassandra for tests, with one node."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tests.servers.brokers.java import jars, java
from tests.servers.process import ServerProcess, free_port

# Read once, as for the other servers.
GIVEN_ADDRESS = os.environ.get("HEADWAY_TEST_CASSANDRA")

_LIMIT = 300.0  # seconds: about one minute on a busy machine

_EXPORTS = (
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.rmi/sun.rmi.transport.tcp",
    "java.sql/java.sql",
)
_OPENS = (
    "java.base/java.lang.module",
    "java.base/java.net",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.util.jar",
    "jdk.management/com.sun.management.internal",
    "java.base/sun.nio.ch",
    "java.base/java.io",
    "java.base/java.nio",
    "java.base/java.lang",
)

_YAML = """\
cluster_name: headway-tests
num_tokens: 16
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
{commitlog}
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters:
      - seeds: "127.0.0.1:{storage_port}"
listen_address: 127.0.0.1
rpc_address: 127.0.0.1
storage_port: {storage_port}
native_transport_port: {port}
endpoint_snitch: SimpleSnitch
data_file_directories: ["{folder}/data"]
commitlog_directory: {folder}/commitlog
hints_directory: {folder}/hints
saved_caches_directory: {folder}/saved_caches
cdc_raw_directory: {folder}/cdc_raw
"""

PERIODIC = MappingProxyType({"commitlog_sync": "periodic", "commitlog_sync_period": "10000ms"})
"""Cassandra's default: with one node, the last writes before a kill may be lost."""
BATCH = MappingProxyType({"commitlog_sync": "batch"})
"""A write is acknowledged once it is on the device."""

# Only warnings, and the line that says it accepts connections.
_LOGBACK = """\
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%level %logger{0} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
  <logger name="org.apache.cassandra.service.CassandraDaemon" level="INFO"/>
</configuration>
"""


@dataclass(frozen=True, slots=True)
class GivenCassandra:
    """A node that runs outside the test process: tests can use it but not stop it."""

    address: str


class CassandraServer(ServerProcess):
    """A node of our own in its own folder; a context manager.

    Args:
        commitlog: the node's commit log settings.

    Raises:
        JavaMissing: Java is not installed.
        ServiceMissing: the jars are not available.
    """

    def __init__(self, commitlog: Mapping[str, str] = PERIODIC) -> None:
        self._java = java()
        self._jars = jars("cassandra")
        super().__init__(
            "cassandra", ready=r"Startup complete", last_signal=signal.SIGKILL, limit=_LIMIT
        )
        self._storage_port = 0
        self._commitlog = "\n".join(f"{name}: {value}" for name, value in commitlog.items())

    @property
    def address(self) -> str:
        """Return the host and native port, such as `127.0.0.1:9042`."""
        return f"127.0.0.1:{self.port}"

    def _command(self) -> list[str]:
        # A node identifies itself by its storage port, which is therefore kept across restarts.
        self._storage_port = self._storage_port or free_port()
        conf = self.folder / "conf"
        conf.mkdir(exist_ok=True)
        for name in ("data", "commitlog", "hints", "saved_caches", "cdc_raw"):
            (self.folder / name).mkdir(exist_ok=True)
        written = _YAML.format(
            port=self.port,
            storage_port=self._storage_port,
            folder=self.folder,
            commitlog=self._commitlog,
        )
        (conf / "cassandra.yaml").write_text(written)
        (conf / "logback.xml").write_text(_LOGBACK)
        words = [str(self._java), "-Xmx1g"]
        for option, names in (("--add-exports", _EXPORTS), ("--add-opens", _OPENS)):
            words += [f"{option}={name}=ALL-UNNAMED" for name in names]
        settings = {
            "cassandra.config": f"file://{conf}/cassandra.yaml",
            "cassandra.storagedir": str(self.folder),
            "cassandra-foreground": "yes",
            "cassandra.skip_wait_for_gossip_to_settle": "0",
            "cassandra.jmx.local.port": str(free_port()),
        }
        words += [f"-D{name}={value}" for name, value in settings.items()]
        return [
            *words,
            "-cp",
            f"{conf}:{self._jars}/*",
            "org.apache.cassandra.service.CassandraDaemon",
        ]
