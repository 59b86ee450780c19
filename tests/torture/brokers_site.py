"""The pipeline through the brokers as an operator sets it up: Kafka, Cassandra, processes.

Two bridges that read one topic, a third whose messages go into minutes being read, two engines of
which one leads, and two workers that publish.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import httpx

from headway.bridges.cassandra.driver import CassandraLink
from headway.bridges.cassandra.link import CassandraSettings
from headway.bridges.cassandra.rows import CalendarProgress, load_progress
from tests.bridges.kafka.rig import Topics
from tests.servers.brokers.cassandra import BATCH, PERIODIC, CassandraServer
from tests.servers.brokers.kafka import KafkaServer
from tests.servers.certificates import self_signed
from tests.servers.process import ServerProcess
from tests.torture.brokers_app import CHANNELS, SERVERS

NEAR, SOON, DEAD = "near", "near.soon", "near.dead"
PARTITIONS = 4
RECIPIENTS = 500
HORIZON_S = MARGIN_S = 60
"""The minimum."""
PUBLISHED_AT_ONCE = 1_000
PROJECT = Path(__file__).parents[2]
SETTINGS = """
store = "{store}"
directory = "sqlite:///{folder}/directory.db"

[kafka]
servers = "{servers}"

[kafka.client]
"session.timeout.ms" = 10000

[kafka.in]
format = "notifications"
dead_letters = "{dead}"

[cassandra]
hosts = ["127.0.0.1"]
port = {cassandra_port}
replication = 1
shards = {shards}
horizon = "{horizon}s"
margin = "{margin}s"
every = "2s"

[telephony.twilio]
account_sid = "AC00112233445566778899aabbccddeeff"
auth_token = "0123456789abcdef0123456789abcdef"

[notifications]
jitter = "0s"

[notifications.senders.push]
key_file = "{key}"
key_id = "ABCDE12345"
team_id = "ABCDE12345"
topic = "org.example.shop"

[notifications.senders.sms]
from = "+14155550199"

[notifications.senders.email]
from = "Shop <shop@example.org>"
smtp = {{ host = "127.0.0.1", port = 25, tls = "none" }}
"""
"""The senders are configured so that their channels exist; nothing is sent by them."""
CHANNEL = """
[notifications.channels.{channel}]
at_once = {at_once}
"""
SHARDS = 4


class Program(ServerProcess):
    """A process of `headway`; it exits with the rig.

    Args:
        folder: folder with the settings and its log.
        words: arguments of the command; `{port}` stands for its port.
        ready: text in the line that it logs once it works.
        off_ms: error of its clock.
        soon: whether its calendar takes jobs that are due soon.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        words: Sequence[str],
        ready: str,
        *,
        off_ms: int = 0,
        soon: bool = False,
    ) -> None:
        super().__init__(name.replace(" ", "-"), ready=ready, last_signal=signal.SIGKILL)
        self._place, self._words = folder, words
        child = ["tests.torture.brokers_child", str(off_ms), "soon" if soon else "usual"]
        self._program = child if off_ms or soon else ["headway"]
        self.environment: dict[str, str] = {}

    def _command(self) -> Sequence[str]:
        words = [word.format(port=self.port) for word in self._words]
        return [sys.executable, "-m", *self._program, *words]

    def _run_as(self) -> Mapping[str, object]:
        own = {
            "PYTHONPATH": str(PROJECT),
            "HEADWAY_LOG_FILE": str(self._place / f"{self.name}.log"),
            **self.environment,
        }
        return {"cwd": self._place, "env": {**os.environ, **own}}


class Way:
    """All servers and processes between the near end and the far end; a context manager.

    Args:
        folder: empty except for the store's files.
        store: URL of the store.
        off_ms: how far one engine's and one bridge's clocks are ahead, and the others' behind.
        killed: whether Cassandra may be killed: a single node then writes before it answers.

    Attributes:
        servers: by name: the broker, Cassandra, and the programs.
        publishers: names of the programs that publish.
        publish: names of all whose death may cause a message to be published twice.
    """

    publishers = ("out-one", "out-two")
    publish = frozenset({*publishers, "kafka"})

    def __init__(self, folder: Path, store: str, off_ms: int, *, killed: bool) -> None:
        self._folder, self._store, self._off_ms = folder, store, off_ms
        self._stack = ExitStack()
        self.kafka = KafkaServer()
        self.cassandra = CassandraServer(BATCH if killed else PERIODIC)
        self.servers: dict[str, ServerProcess] = {}
        self.topics = Topics("")

    def __enter__(self) -> Self:
        """Start everything, and register the recipients."""
        with self._stack as stack:
            for server in (self.kafka, self.cassandra):
                self.servers[server.name] = stack.enter_context(server)
            self.topics = Topics(self.kafka.address)
            self._make_topics()
            self._write_settings()
            for program in self._programs():
                self.servers[program.name] = program
                stack.enter_context(program)
                if program.name == "engine-one":
                    self._add_recipients(program.port)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop everything."""
        self._stack.close()

    def ended(self) -> list[str]:
        """Return programs that exited without being killed, with their last output."""
        return [
            f"{name}: {server.printed[-2_000:]}"
            for name, server in self.servers.items()
            if not server.pid
        ]

    def link(self) -> CassandraLink:
        """Return our own link to the calendar."""
        return CassandraLink(
            CassandraSettings(hosts=["127.0.0.1"], port=self.cassandra.port, shards=SHARDS)
        )

    async def progress(self) -> CalendarProgress | None:
        """Return how far the calendar has been read."""
        link = self.link()
        try:
            return await load_progress(link)
        finally:
            await link.close()

    # ------------------------------------------------------------------------------ internals

    def _make_topics(self) -> None:
        self.topics.new(PARTITIONS, name=NEAR)
        self.topics.new(name=SOON)
        self.topics.new(name=DEAD)
        for channel in CHANNELS:
            # The broker's own clock sets the append times.
            self.topics.new(name=channel, config={"message.timestamp.type": "LogAppendTime"})

    def _write_settings(self) -> None:
        _, key = self_signed(self._folder)
        written = SETTINGS.format(
            store=self._store,
            folder=self._folder,
            servers=self.kafka.address,
            dead=DEAD,
            cassandra_port=self.cassandra.port,
            shards=SHARDS,
            horizon=HORIZON_S,
            margin=MARGIN_S,
            key=key,
        )
        for channel in CHANNELS:
            written += CHANNEL.format(channel=channel, at_once=PUBLISHED_AT_ONCE)
        (self._folder / "headway.toml").write_text(written)

    def _programs(self) -> Sequence[Program]:
        def engine(name: str, off_ms: int) -> Program:
            words = ("serve", "--port={port}", "--no-work", "--system=notifications")
            return Program(self._folder, name, words, "server listens", off_ms=off_ms)

        def bridge(name: str, topic: str, off_ms: int, *, soon: bool = False) -> Program:
            words = ("bridge", "kafka-in", f"--topic={topic}", f"--group={topic}")
            return Program(self._folder, name, words, "kafka started", off_ms=off_ms, soon=soon)

        def publisher(name: str) -> Program:
            app = "tests.torture.brokers_app"
            words = ("worker", app, f"--concurrency={PUBLISHED_AT_ONCE}")
            made = Program(self._folder, name, words, "worker starts")
            made.environment[SERVERS] = self.kafka.address
            return made

        off_ms = self._off_ms
        return [
            engine("engine-one", -off_ms),
            engine("engine-two", off_ms),
            bridge("in-one", NEAR, off_ms),
            bridge("in-two", NEAR, -off_ms),
            bridge("in-soon", SOON, -off_ms, soon=True),
            *map(publisher, self.publishers),
        ]

    def _add_recipients(self, port: int) -> None:
        body = "\n".join(["id", *(f"r{n}" for n in range(RECIPIENTS))]).encode()
        reply = httpx.post(
            f"http://127.0.0.1:{port}/recipients/import",
            content=body,
            headers={"Content-Type": "text/csv"},
            timeout=60,
        )
        assert reply.is_success, reply.text
