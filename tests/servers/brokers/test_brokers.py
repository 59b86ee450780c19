from __future__ import annotations

import fcntl
import socket
from pathlib import Path
from uuid import uuid4

import pytest
from cassandra.cluster import Cluster
from confluent_kafka import Consumer, Producer

from tests.servers.brokers.cassandra import GivenCassandra
from tests.servers.brokers.java import JavaMissing, jars, java
from tests.servers.brokers.kafka import GivenKafka, KafkaServer
from tests.servers.brokers.sharing import shared
from tests.servers.fixtures import made, missing
from tests.servers.process import ServiceMissing


def produce(address: str, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    producer.produce(topic, value)
    assert producer.flush(60) == 0


def consume(address: str, topic: str) -> bytes | None:
    settings = {"bootstrap.servers": address, "group.id": uuid4().hex}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
        return message.value()
    finally:
        consumer.close()


@pytest.mark.slow
def test_shared_kafka_keeps_a_message(kafka_server: GivenKafka) -> None:
    topic = uuid4().hex
    produce(kafka_server.address, topic, b"kept")
    assert consume(kafka_server.address, topic) == b"kept"


@pytest.mark.slow
def test_shared_cassandra_answers(cassandra_server: GivenCassandra) -> None:
    host, port = cassandra_server.address.split(":")
    with Cluster([host], port=int(port)) as cluster:
        row = cluster.connect().execute("SELECT release_version FROM system.local").one()
        assert row is not None
        assert row.release_version.startswith("5.")


@pytest.mark.slow
def test_kafka_keeps_acknowledged_messages_through_a_kill() -> None:
    with made(KafkaServer) as server:
        produce(server.address, "kept", b"kept")
        address = server.address
        server.kill()
        server.start()
        assert server.address == address
        assert consume(address, "kept") == b"kept"


@pytest.mark.slow
def test_users_share_a_broker_that_ends_with_the_last(tmp_path: Path) -> None:
    made(KafkaServer).close()
    with shared("kafka", tmp_path) as first:
        with shared("kafka", tmp_path) as second:
            assert first == second
        produce(first, "kept", b"kept")
    with (tmp_path / "kafka.holder").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
    host, port = first.split(":")
    with pytest.raises(ConnectionRefusedError), socket.create_connection((host, int(port))):
        pass


@pytest.mark.parametrize("required", ["0", "1"])
def test_broker_without_java_is_skipped_everywhere(
    required: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("HEADWAY_REQUIRE_SERVICES", required)
    with pytest.raises(pytest.skip.Exception, match="no Java"):
        made(KafkaServer)


@pytest.mark.parametrize(
    ("required", "refused"), [("0", pytest.skip.Exception), ("1", pytest.fail.Exception)]
)
def test_jars_without_maven(
    required: str,
    refused: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HEADWAY_REQUIRE_SERVICES", required)
    with pytest.raises(ServiceMissing, match="no mvn") as raised:
        jars("kafka")
    with pytest.raises(refused, match="no mvn"):
        missing(raised.value)


def test_too_old_java_counts_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "bin/java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho '    java.specification.version = 11' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing, match="is Java 11, not 17"):
        java()
