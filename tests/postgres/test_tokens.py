"""Tokens on a schema that has no table for them yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from headway.contract.definitions import DefineRequest, RevokeToken, SetToken
from headway.contract.extensions import Movable
from headway.contract.views import StatsQuery, TokensQuery
from headway.core.errors import SchemaMismatch
from headway.stores import open_store
from headway.stores.postgres.numbers import TOKENS_SINCE
from headway.stores.postgres.options import parse_url
from headway.stores.postgres.schema import latest, migrate_schema, shipped
from headway.testing.conformance.granting import SENDER
from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database


@pytest.fixture(scope="module")
def database(fast_postgres_server: PostgresServer | GivenPostgres) -> Iterator[str]:
    with fresh_database(fast_postgres_server.url) as url:
        yield url


@pytest.fixture
def old_url(database: str, tmp_path: Path) -> str:
    """A store of the last schema without tokens, which is not migrated automatically."""
    for one in shipped().iterdir():
        if one.name.endswith(".sql") and int(one.name[:4]) < TOKENS_SINCE:
            tmp_path.joinpath(one.name).write_text(one.read_text())
    url = f"{database}{'&' if '?' in database else '?'}namespace=t{uuid4().hex}"
    options = parse_url(url)
    with psycopg.connect(options.conninfo, autocommit=True) as connection:
        migrate_schema(connection, options, tmp_path)
    return f"{url}&migrate=off"


async def test_schema_without_tokens_has_none_and_can_be_copied(old_url: str) -> None:
    store = open_store(old_url)
    assert isinstance(store, Movable)
    assert await store.read(TokensQuery()) == ()
    assert await store.read(TokensQuery(ids=(SENDER.id,))) == ()
    parts: dict[str, int] = {}
    cursor: str | None = None
    while True:
        chunk = await store.export_chunk(cursor)
        parts[chunk.part] = chunk.size
        cursor = chunk.cursor
        if cursor is None:
            break
    assert parts["tokens"] == 0
    await store.close()


async def test_token_on_a_schema_without_tokens_is_refused_until_migrated(
    old_url: str,
) -> None:
    store = open_store(old_url)
    for item in (SetToken(spec=SENDER), RevokeToken(id=SENDER.id)):
        with pytest.raises(SchemaMismatch) as refused:
            await store.define(DefineRequest(items=(item,), author="ann"))
        assert "headway migrate" in refused.value.hint
    options = parse_url(old_url)
    with psycopg.connect(options.conninfo, autocommit=True) as connection:
        assert migrate_schema(connection, options) == (TOKENS_SINCE - 1, latest())
    # The same process continues, and can now store tokens.
    await store.define(DefineRequest(items=(SetToken(spec=SENDER),), author="ann"))
    assert [one.spec for one in await store.read(TokensQuery())] == [SENDER]
    assert (await store.read(StatsQuery())).revision == 1
    await store.close()
