"""Databases of both kinds that can hold a user's table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.postgres import GivenPostgres, PostgresServer
from tests.systems.calls.source_table.databases import database


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Create an empty database of each kind in turn."""
    server_url = ""
    if request.param == "postgresql":
        server: PostgresServer | GivenPostgres = request.getfixturevalue("fast_postgres_server")
        server_url = server.url
    with database(request.param, server_url, tmp_path / "theirs") as url:
        yield url
