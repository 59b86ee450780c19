"""Namespaces for tests of the store, and what such tests need."""

from __future__ import annotations

from typing import Any, LiteralString, cast
from uuid import uuid4

import psycopg

from headway.contract.store import Clock
from headway.stores.postgres.options import parse_url
from headway.stores.postgres.store import PostgresStore


class Place:
    """A namespace of a database, which several stores may open.

    Args:
        url: URL of the database.
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
        """Execute a statement outside the stores; `@` is the schema."""
        ready = cast("LiteralString", text.replace("@", f"{self.namespace}."))
        with psycopg.connect(self.database, autocommit=True) as db:
            found = db.execute(ready, bound)
            return found.fetchall() if found.description else []

    def tables(self) -> list[str]:
        found = self.sql("SELECT tablename FROM pg_tables WHERE schemaname = %s", self.namespace)
        return [name for (name,) in found]

    def back_up(self) -> None:
        """Copy all rows as they are now."""
        kept = f"{self.namespace}_kept"
        copies = [f"CREATE TABLE {kept}.{name} AS TABLE @{name}" for name in self.tables()]
        self.sql("; ".join([f"CREATE SCHEMA {kept}", *copies]))

    def restore(self, kept: str | None = None) -> None:
        """Restore the copied rows, as an operator does: all connections are closed first."""
        names = self.tables()
        self.sql(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        source = f"{kept or self.namespace}_kept"
        self.sql("; ".join(f"TRUNCATE @{name}" for name in names))
        copies = [
            f"INSERT INTO @{name} OVERRIDING SYSTEM VALUE SELECT * FROM {source}.{name}"  # noqa: S608  (the names of our own tables)
            for name in names
        ]
        self.sql("; ".join(copies))

    def forget(self) -> None:
        self.sql(f"DROP SCHEMA IF EXISTS {self.namespace}, {self.namespace}_kept CASCADE")
