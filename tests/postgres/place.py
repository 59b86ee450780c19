"""Fixtures: a place, and the clock of its stores."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from headway.testing.clock import FakeClock
from tests.postgres.places import Place
from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database


@pytest.fixture(scope="session")
def place_database(fast_postgres_server: PostgresServer | GivenPostgres) -> Iterator[str]:
    with fresh_database(fast_postgres_server.url) as url:
        yield url


@pytest_asyncio.fixture
async def place(place_database: str) -> AsyncIterator[Place]:
    made = Place(place_database)
    yield made
    for store in made.stores:
        await store.close()
    made.forget()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()
