"""Connections besides those of the steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from headway.stores.postgres.link import open_link
from headway.stores.postgres.options import PostgresOptions, parse_url
from headway.stores.postgres.registry import Registry
from headway.stores.postgres.server_facts import migrate, read_facts
from headway.stores.postgres.store import prepare
from tests.postgres.places import Place
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


def test_numbers_are_not_read_over_the_old_connection_after_a_failover(url: str) -> None:
    old, new = Place(url), Place(url)
    for place in (old, new):
        prepare(parse_url(place.url))
    new.sql("INSERT INTO @word (body) VALUES ('x'), ('y')")
    servers = [new, old]
    registry = Registry(lambda: open_link(parse_url(servers.pop().url)), lambda error: error)
    registry.words.number("before")
    # The connection of a step broke; this one still leads to the former primary.
    registry.forget()
    number = registry.words.number("after")
    registry.close(1)
    assert new.sql("SELECT no FROM @word WHERE body = 'after'") == [(number,)]
    assert old.sql("SELECT no FROM @word WHERE body = 'after'") == []
