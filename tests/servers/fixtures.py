"""The servers that tests share: one of each in a test process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import NoReturn, TypeVar

import pytest

from tests.servers import postgres, redis
from tests.servers.postgres import GivenPostgres, PostgresServer
from tests.servers.process import ServerProcess, ServiceMissing
from tests.servers.redis import GivenRedis, RedisServer

Server = TypeVar("Server", bound=ServerProcess)


def missing(reason: object) -> NoReturn:
    """Skips the test, unless services must be there."""
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
