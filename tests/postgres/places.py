"""Namespaces that tests of the store make, and what such tests need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, LiteralString, cast
from uuid import uuid4

import psycopg

from headway.contract.claims import ClaimReply, ClaimRequest
from headway.contract.clock import Clock
from headway.contract.outcomes import SettleRequest, Succeeded, Verdict
from headway.contract.views import AuditQuery, StatsQuery
from headway.core.job import NewJob, derived_id
from headway.stores.postgres.options import parse_url
from headway.stores.postgres.store import PostgresStore

LANE = "main"


class Place:
    """A namespace of a database, which several stores may open.

    Args:
        url: of the database.
    """

    def __init__(self, url: str) -> None:
        self.database = url
        self.namespace = f"test_{uuid4().hex}"
        self.stores: list[PostgresStore] = []

    @property
    def url(self) -> str:
        mark = "&" if "?" in self.database else "?"
        return f"{self.database}{mark}namespace={self.namespace}"

    def open(self, clock: Clock | None = None, **options: str) -> PostgresStore:
        given = "".join(f"&{name}={value}" for name, value in options.items())
        store = PostgresStore(parse_url(self.url + given), clock)
        self.stores.append(store)
        return store

    def sql(self, text: str, *bound: object) -> list[tuple[Any, ...]]:
        """Executes a statement as somebody else would; `@` is the schema."""
        ready = cast("LiteralString", text.replace("@", f"{self.namespace}."))
        with psycopg.connect(self.database, autocommit=True) as db:
            found = db.execute(ready, bound)
            return found.fetchall() if found.description else []

    def tables(self) -> list[str]:
        found = self.sql("SELECT tablename FROM pg_tables WHERE schemaname = %s", self.namespace)
        return [name for (name,) in found]

    def back_up(self) -> None:
        """Keeps all rows as they are now."""
        self.sql(f"CREATE SCHEMA {self.namespace}_kept")
        for name in self.tables():
            self.sql(f"CREATE TABLE {self.namespace}_kept.{name} AS TABLE @{name}")

    def restore(self, kept: str | None = None) -> None:
        """Puts back what was kept, as an operator does: nobody stays connected meanwhile."""
        names = self.tables()
        self.sql(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        self.sql("; ".join(f"TRUNCATE @{name}" for name in names))
        for name in names:
            source = f"{kept or self.namespace}_kept.{name}"
            self.sql(f"INSERT INTO @{name} OVERRIDING SYSTEM VALUE SELECT * FROM {source}")  # noqa: S608  (the names of our own tables)

    def forget(self) -> None:
        self.sql(f"DROP SCHEMA IF EXISTS {self.namespace}, {self.namespace}_kept CASCADE")


def job(number: int, **fields: Any) -> NewJob:
    """A plain job whose id follows from its number."""
    return NewJob(id=derived_id("postgres", number), kind="noop", **fields)


def jobs(first: int, count: int, **fields: Any) -> list[NewJob]:
    return [job(number, **fields) for number in range(first, first + count)]


async def claim(
    store: PostgresStore, worker: str = "w", request: int = 1, n: int = 1000
) -> ClaimReply:
    return await store.claim(
        ClaimRequest(worker=worker, request=request, lanes=((LANE, 1),), n=n, free=n)
    )


async def succeed(
    store: PostgresStore, runs: Sequence[tuple[str, int]], worker: str = "w"
) -> list[Verdict]:
    outcomes = tuple(Succeeded(one, run) for one, run in runs)
    return await store.settle(SettleRequest(worker=worker, outcomes=outcomes))


async def count(store: PostgresStore, state: str) -> int:
    return (await store.read(StatsQuery())).counts.get(state, 0)


async def assert_clean(store: PostgresStore) -> None:
    audit = await store.read(AuditQuery())
    assert audit.differences == ()
