from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from headway.stores.postgres.options import PostgresOptions, parse_url
from tests.postgres.caller_inserts import CallerInserts
from tests.postgres.place import clock, place, place_database  # noqa: F401  (fixtures)
from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database


@pytest.fixture(scope="module")
def caller_url(fast_postgres_server: PostgresServer | GivenPostgres) -> Iterator[str]:
    """A database with the table of the insertion that replaces the store's."""
    with fresh_database(fast_postgres_server.url) as database:
        with psycopg.connect(database) as db:
            db.execute("CREATE TABLE sent (job text PRIMARY KEY, args bytea)")
        yield database


@pytest.fixture
def caller_options(caller_url: str) -> Iterator[PostgresOptions]:
    yield parse_url(caller_url)
    with psycopg.connect(caller_url) as db:
        db.execute("TRUNCATE sent")


@pytest.fixture
def inserts(caller_options: PostgresOptions) -> CallerInserts:
    return CallerInserts(caller_options)
