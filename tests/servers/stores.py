"""Stores of every kind for tests that say nothing of one: each empty, and nobody else's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from tests.servers.postgres import fresh_database

NewUrl = Callable[[str], str]
"""Takes a kind of store, and gives the URL of one that nobody has used."""

ON_SERVERS = ("postgresql", "redis")
"""Kinds of stores that stand on a server."""

DURABLE = ("sqlite", *ON_SERVERS)
"""Kinds of stores that are there for the next process, too."""

EVERYWHERE = ("memory", *DURABLE)
"""All kinds of stores."""


@pytest.fixture(scope="session")
def shared_database(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of one database for all tests of a process; each has a namespace of its own there."""
    server = request.getfixturevalue("fast_postgres_server")
    with fresh_database(server.url) as url:
        yield url


@pytest.fixture
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NewUrl]:
    """Gives URLs of new stores; what they leave on a server is gone with the test.

    A server is started with the first store on it, so a test of another kind needs none.
    """
    schemas: list[str] = []

    def new(kind: str) -> str:
        name = f"t{uuid4().hex}"
        if kind == "memory":
            return "memory://"
        if kind == "sqlite":
            return f"sqlite:///{tmp_path}/{name}.db?synchronous=normal"
        if kind == "redis":
            return f"{request.getfixturevalue('redis_server').url}?namespace={name}"
        assert kind == "postgresql", kind
        schemas.append(name)
        url: str = request.getfixturevalue("shared_database")
        return f"{url}{'&' if '?' in url else '?'}namespace={name}"

    yield new
    if schemas:
        with psycopg.connect(request.getfixturevalue("shared_database"), autocommit=True) as admin:
            for name in schemas:
                drop = sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE")
                admin.execute(drop.format(sql.Identifier(name)))
