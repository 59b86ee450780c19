"""The servers that tests share: one of each in a test process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NoReturn, TypeVar

import pytest

from tests.servers import postgres, redis
from tests.servers.brokers import cassandra, kafka
from tests.servers.brokers.cassandra import GivenCassandra
from tests.servers.brokers.java import JavaMissing
from tests.servers.brokers.kafka import GivenKafka
from tests.servers.brokers.sharing import shared
from tests.servers.postgres import GivenPostgres, PostgresServer
from tests.servers.process import ServerProcess, ServiceMissing
from tests.servers.redis import GivenRedis, RedisServer

Server = TypeVar("Server", bound=ServerProcess)


def missing(reason: object) -> NoReturn:
    """Skip the test, or fail it if services are required; Java is never required."""
    if isinstance(reason, JavaMissing):
        pytest.skip(str(reason))
    if os.environ.get("HEADWAY_REQUIRE_SERVICES") == "1":
        pytest.fail(f"{reason}; HEADWAY_REQUIRE_SERVICES is 1")
    pytest.skip(str(reason))


def made(make: Callable[[], Server]) -> Server:
    """Return a server that a test creates for itself, not started; skip if there can be none."""
    try:
        return make()
    except ServiceMissing as reason:
        missing(reason)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer | GivenPostgres]:
    """Run a PostgreSQL that is not stopped while the tests run; fsync is on."""
    if postgres.GIVEN_URL:
        yield GivenPostgres(postgres.GIVEN_URL)
        return
    with made(PostgresServer) as server:
        yield server


@pytest.fixture(scope="session")
def fast_postgres_server() -> Iterator[PostgresServer | GivenPostgres]:
    """As `postgres_server`, but with fsync off: no test cuts the power."""
    if postgres.GIVEN_URL:
        yield GivenPostgres(postgres.GIVEN_URL)
        return
    with made(lambda: PostgresServer({"fsync": "off"})) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer | GivenRedis]:
    """Run a Redis that is not stopped while the tests run, without persistence."""
    if redis.GIVEN_URL:
        yield GivenRedis(redis.GIVEN_URL)
        return
    with made(RedisServer) as server:
        yield server


@pytest.fixture(scope="session")
def kafka_server() -> Iterator[GivenKafka]:
    """Run a Kafka that is not stopped while the tests run; tests choose the names of its topics."""
    if kafka.GIVEN_ADDRESS:
        yield GivenKafka(kafka.GIVEN_ADDRESS)
        return
    with broker("kafka") as address:
        yield GivenKafka(address)


@pytest.fixture(scope="session")
def cassandra_server() -> Iterator[GivenCassandra]:
    """Run a Cassandra that is not stopped while the tests run; tests choose its keyspace names."""
    if cassandra.GIVEN_ADDRESS:
        yield GivenCassandra(cassandra.GIVEN_ADDRESS)
        return
    with broker("cassandra") as address:
        yield GivenCassandra(address)


@contextmanager
def broker(name: str) -> Iterator[str]:
    """Return the address of a broker shared by all test processes; skip if there can be none."""
    with ExitStack() as stack:
        try:
            address = stack.enter_context(shared(name))
        except ServiceMissing as reason:
            missing(reason)
        yield address
