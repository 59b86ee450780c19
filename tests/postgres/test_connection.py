"""Connections besides those of the steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from headway.stores.postgres.options import PostgresOptions, parse_url
from headway.stores.postgres.server_facts import migrate, read_facts
from headway.stores.postgres.store import prepare
from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database


@pytest.fixture
def url(fast_postgres_server: PostgresServer | GivenPostgres) -> Iterator[str]:
    with fresh_database(fast_postgres_server.url) as database:
        yield database


@pytest.mark.parametrize("opens", [prepare, read_facts, migrate])
def test_connection_for_the_schema_or_facts_detects_a_dead_server(
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    opens: Callable[[PostgresOptions], object],
) -> None:
    prepare(parse_url(url))
    opened: list[dict[str, str]] = []
    connect = psycopg.connect

    def recorded(*args: Any, **options: Any) -> psycopg.Connection[Any]:
        made = connect(*args, **options)
        opened.append(made.info.get_parameters())
        return made

    monkeypatch.setattr(psycopg, "connect", recorded)
    mark = "&" if "?" in url else "?"
    opens(parse_url(f"{url}{mark}patience_ms=4000&keepalives_count=7"))
    (found,) = opened
    wanted = ("connect_timeout", "keepalives_idle", "tcp_user_timeout", "keepalives_count")
    assert [found[name] for name in wanted] == ["4", "15", "12000", "7"]
