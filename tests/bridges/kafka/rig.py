"""Topics, messages and bridge processes, for tests with a real broker."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import headway as hw
from headway.contract.views import LanesQuery

LIMIT = 120.0  # seconds; only stops what hangs
QUIET = {"log_level": 0}
"""For a client that must not log while its broker is killed."""


class Seen(NamedTuple):
    """A message on the target topic."""

    partition: int
    offset: int
    key: str | None
    value: bytes | None
    headers: dict[str, bytes]


class Topics:
    """Topics of a broker, with unique names."""

    def __init__(self, address: str) -> None:
        self.address = address

    def new(
        self, partitions: int = 1, *, name: str = "", config: Mapping[str, str] | None = None
    ) -> str:
        name = name or f"t{uuid4().hex}"
        admin = AdminClient({"bootstrap.servers": self.address})
        topic = NewTopic(name, partitions, 1, config=dict(config or {}))
        made = admin.create_topics([topic], operation_timeout=60)
        made[name].result(60)
        return name

    def producer(self) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self.address,
                "enable.idempotence": True,
                "message.timeout.ms": 0,
                **QUIET,
            }
        )

    def send(self, topic: str, values: Iterator[bytes] | list[bytes], *, key: str = "k") -> None:
        """Produce messages with the keys k0, k1, …; all are acknowledged when this returns."""
        producer = self.producer()
        for n, value in enumerate(values):
            while True:
                try:
                    producer.produce(topic, value, key=f"{key}{n}")
                    break
                except BufferError:
                    producer.poll(1)
        assert producer.flush(LIMIT) == 0

    def read(self, topic: str, partitions: int = 1) -> list[Seen]:
        """Return everything that a topic contains now, in the order of each partition."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": uuid4().hex,
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(topic, n, 0) for n in range(partitions)])
        found: list[Seen] = []
        ends = 0
        while ends < partitions:
            for one in consumer.consume(1_000, 1):
                if one.error() is not None:
                    ends += one.error().name() == "_PARTITION_EOF"
                    continue
                key = one.key()
                text = None if key is None else key.decode()
                headers = dict(one.headers() or [])
                found.append(Seen(one.partition(), one.offset(), text, one.value(), headers))
        consumer.close()
        return found

    def committed(self, group: str, topic: str, partitions: int = 1) -> int:
        """Return the sum of a group's committed offsets."""
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": group})
        places = [TopicPartition(topic, n) for n in range(partitions)]
        try:
            return sum(max(0, one.offset) for one in consumer.committed(places, timeout=30))
        except KafkaException:
            return 0
        finally:
            consumer.close()


@contextmanager
def bridge(*line: str, store: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `headway bridge`; kill the process at the end if it is still running."""
    process = subprocess.Popen(
        [sys.executable, "-m", "headway", "bridge", *line, "--store", store],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HEADWAY_LOG_LEVEL": "warning"},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def end(process: subprocess.Popen[bytes]) -> int:
    """Send SIGTERM, and return the exit code."""
    process.send_signal(signal.SIGTERM)
    return process.wait(LIMIT)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Send SIGKILL."""
    process.kill()
    process.wait()


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Poll until the condition holds."""
    async with asyncio.timeout(LIMIT):
        while not await holds():  # noqa: ASYNC110  (no event crosses processes)
            await asyncio.sleep(0.05)  # noqa: TID251  (other processes write it)


async def count(app: hw.App, lane: str, *states: str) -> int:
    """Return the number of jobs of a lane in these states (default: all)."""
    for one in await app.store.read(LanesQuery()):
        if one.name == lane:
            return sum(n for state, n in one.counts.items() if not states or str(state) in states)
    return 0


def sqlite(folder: Path) -> str:
    """Return the URL of a store in a file."""
    return f"sqlite:///{folder}/jobs.db"
