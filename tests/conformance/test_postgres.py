from __future__ import annotations

from collections.abc import Iterator

import pytest

from headway.stores import open_store
from headway.testing.conformance import MakeStore, StoreConformance
from tests.servers.namespaces import Namespaces
from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database


@pytest.fixture(scope="session")
def namespaces(fast_postgres_server: PostgresServer | GivenPostgres) -> Iterator[Namespaces]:
    """One database for all cases; each store has a namespace of its own there."""
    with fresh_database(fast_postgres_server.url) as url:
        yield Namespaces(url)


class TestPostgresStore(StoreConformance):
    @pytest.fixture
    def make_store(self, namespaces: Namespaces) -> Iterator[MakeStore]:
        yield lambda clock: open_store(namespaces.url(), clock=clock)
        namespaces.take_back()
