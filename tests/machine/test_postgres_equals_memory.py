"""Random commands on PostgreSQL and on memory: equal replies, equal dumps, clean audits."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest

from headway.contract.clock import Clock
from headway.contract.store import Store
from headway.stores import open_store
from tests.machine.machine import LONG, StoresMachine
from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database


class PostgresMachine(StoresMachine):
    """Memory and a namespace of a database."""

    store_name = "PostgreSQL"
    url: str

    def open(self, clock: Clock) -> Store:
        self.namespace = f"machine_{uuid4().hex}"
        mark = "&" if "?" in self.url else "?"
        return open_store(f"{self.url}{mark}namespace={self.namespace}", clock=clock)

    def forget(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA {self.namespace} CASCADE".encode())


@pytest.fixture(scope="module", autouse=True)
def serve(fast_postgres_server: PostgresServer | GivenPostgres) -> Iterator[None]:
    with fresh_database(fast_postgres_server.url) as url:
        PostgresMachine.url = url
        yield


@pytest.mark.slow
@pytest.mark.timeout(3600)
class TestPostgresEqualsMemoryInLongHistories(PostgresMachine.TestCase):
    settings = LONG
