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
    """Skips the test, unless services must be there; Java need not."""
    if isinstance(reason, JavaMissing):
        pytest.skip(str(reason))
    if os.environ.get("HEADWAY_REQUIRE_SERVICES") == "1":
        pytest.fail(f"{reason}; HEADWAY_REQUIRE_SERVICES is 1")
    pytest.skip(str(reason))


def made(make: Callable[[], Server]) -> Server:
    """A server that a test makes for itself, not started; skips if there can be none."""
    try:
        return make()
    except ServiceMissing as reason:
        missing(reason)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer | GivenPostgres]:
    """A PostgreSQL that is not stopped while the tests run; fsync is on."""
    if postgres.GIVEN_URL:
        yield GivenPostgres(postgres.GIVEN_URL)
        return
    with made(PostgresServer) as server:
        yield server


@pytest.fixture(scope="session")
def fast_postgres_server() -> Iterator[PostgresServer | GivenPostgres]:
    """As `postgres_server`, but it does not wait for the device: nothing here cuts the power."""
    if postgres.GIVEN_URL:
        yield GivenPostgres(postgres.GIVEN_URL)
        return
    with made(lambda: PostgresServer({"fsync": "off"})) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer | GivenRedis]:
    """A Redis that is not stopped while the tests run; it keeps nothing on the device."""
    if redis.GIVEN_URL:
        yield GivenRedis(redis.GIVEN_URL)
        return
    with made(RedisServer) as server:
        yield server


@pytest.fixture(scope="session")
def kafka_server() -> Iterator[GivenKafka]:
    """A Kafka that is not stopped while the tests run; its topics are named by the tests."""
    if kafka.GIVEN_ADDRESS:
        yield GivenKafka(kafka.GIVEN_ADDRESS)
        return
    with broker("kafka") as address:
        yield GivenKafka(address)


@pytest.fixture(scope="session")
def cassandra_server() -> Iterator[GivenCassandra]:
    """A Cassandra that is not stopped while the tests run; its keyspaces are named by the tests."""
    if cassandra.GIVEN_ADDRESS:
        yield GivenCassandra(cassandra.GIVEN_ADDRESS)
        return
    with broker("cassandra") as address:
        yield GivenCassandra(address)


@contextmanager
def broker(name: str) -> Iterator[str]:
    """The address of a broker that all test processes share; skips if there can be none."""
    with ExitStack() as stack:
        try:
            address = stack.enter_context(shared(name))
        except ServiceMissing as reason:
            missing(reason)
        yield address
