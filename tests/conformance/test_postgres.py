from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import psycopg
import pytest

from headway.stores import open_store
from headway.testing.conformance import MakeStore, StoreConformance
from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database


@pytest.fixture(scope="session")
def database(fast_postgres_server: PostgresServer | GivenPostgres) -> Iterator[str]:
    """One database for all cases; each store has a namespace of its own there."""
    with fresh_database(fast_postgres_server.url) as url:
        yield url


_NUMBERS = count(1)


@pytest.fixture
def namespaces(database: str) -> Iterator[list[str]]:
    """The namespaces that a case makes; gone with it."""
    made: list[str] = []
    yield made
    with psycopg.connect(database, autocommit=True) as connection:
        for name in made:
            connection.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE'.encode())


class TestPostgresStore(StoreConformance):
    @pytest.fixture
    def make_store(self, database: str, namespaces: list[str]) -> MakeStore:
        def make(clock):
            name = f"case_{next(_NUMBERS)}"
            namespaces.append(name)
            mark = "&" if "?" in database else "?"
            return open_store(f"{database}{mark}namespace={name}", clock=clock)

        return make
