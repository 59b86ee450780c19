from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from headway.stores.postgres.options import PostgresOptions, parse_url
from tests.postgres.door import Door
from tests.postgres.place import clock, place, place_database  # noqa: F401  (fixtures)
from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database


@pytest.fixture(scope="module")
def door_url(fast_postgres_server: PostgresServer | GivenPostgres) -> Iterator[str]:
    """A database with the table of the insertion that replaces the store's."""
    with fresh_database(fast_postgres_server.url) as database:
        with psycopg.connect(database) as db:
            db.execute("CREATE TABLE sent (job text PRIMARY KEY, args bytea)")
        yield database


@pytest.fixture
def door_options(door_url: str) -> Iterator[PostgresOptions]:
    yield parse_url(door_url)
    with psycopg.connect(door_url) as db:
        db.execute("TRUNCATE sent")


@pytest.fixture
def door(door_options: PostgresOptions) -> Door:
    return Door(door_options)
