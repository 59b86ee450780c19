"""Reusable namespaces of a PostgreSQL: emptying one is far quicker than creating one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from time import sleep  # noqa: TID251  (a server process has no event to wait for)
from typing import Self

import psycopg

from headway.stores.postgres.numbers import OLDEST_PROGRAM
from headway.stores.sql.statement import EPOCH, IDENTITY, SCHEMA

# Statements sent by a killed process may still be running, and would take effect after the cleanup.
_END_OTHERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""

_LOOKS, _LOOK_AFTER = 5_000, 0.002
# Large tables are truncated: their dead rows would slow down the namespace's next user.
_EMPTY = """
DO $$
DECLARE one record;
BEGIN
    FOR one IN SELECT c.oid::regclass AS name, pg_relation_size(c.oid) AS size FROM pg_class c
        WHERE c.relnamespace = '"{name}"'::regnamespace AND c.relkind = 'r'
        AND c.relname <> 'number' AND pg_relation_size(c.oid) > 0
    LOOP
        IF one.size > 262144 THEN
            EXECUTE format('TRUNCATE %s', one.name);
        ELSE
            EXECUTE format('DELETE FROM %s', one.name);
        END IF;
    END LOOP;
    PERFORM setval(c.oid::regclass, s.seqstart, false)
        FROM pg_class c JOIN pg_sequence s ON s.seqrelid = c.oid
        WHERE c.relnamespace = '"{name}"'::regnamespace;
    DELETE FROM "{name}".number WHERE key NOT IN ({kept});
    UPDATE "{name}".number SET n = (random() * 9e15)::bigint WHERE key = {identity};
    UPDATE "{name}".number SET n = 1 WHERE key = {epoch};
END $$
"""


class Namespaces:
    """The namespaces of one database, each used by one test at a time; a context manager.

    Args:
        database: URL of the database.
        prepare: called with the URL of each new namespace; otherwise its first store prepares it.
    """

    def __init__(self, database: str, *, prepare: Callable[[str], object] | None = None) -> None:
        self._database = database
        self._prepare = prepare
        self._numbers = count(1)
        self._empty: list[str] = []
        self._lent: list[str] = []
        self._to_drop: list[str] = []
        self._connection: psycopg.Connection | None = None

    def url(self, *, made: bool = True) -> str:
        """Return the URL of an empty store; with `made` off, of a schema that does not exist."""
        used = made and bool(self._empty)
        name = self._empty.pop() if used else f"case_{next(self._numbers)}"
        (self._lent if made else self._to_drop).append(name)
        mark = "&" if "?" in self._database else "?"
        url = f"{self._database}{mark}namespace={name}"
        if made and not used and self._prepare is not None:
            self._prepare(url)
        return url

    def take_back(self) -> None:
        """Empty all namespaces handed out since the last call, and end all other connections."""
        if not self._lent and not self._to_drop:
            return
        if self._connection is None:
            self._connection = psycopg.connect(self._database, autocommit=True)
        _end_others(self._connection)
        for name in self._lent:
            self._take_back(self._connection, name)
        self._lent.clear()
        for name in self._to_drop:
            self._connection.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE'.encode())
        self._to_drop.clear()

    def _take_back(self, connection: psycopg.Connection, name: str) -> None:
        found = connection.execute("SELECT to_regclass(%s)", (f'"{name}".number',)).fetchone()
        if found is None or found[0] is None:
            return  # no store was opened there
        kept = ", ".join(map(str, (SCHEMA, OLDEST_PROGRAM, IDENTITY, EPOCH)))
        text = _EMPTY.format(name=name, kept=kept, identity=IDENTITY, epoch=EPOCH)
        connection.execute(text.encode())
        self._empty.append(name)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()


def _end_others(connection: psycopg.Connection) -> None:
    # The function can wait by itself, but checks only every 100 ms.
    for _ in range(_LOOKS):
        if not connection.execute(_END_OTHERS).fetchall():
            return
        sleep(_LOOK_AFTER)
    message = "connections to the database of the tests do not end"
    raise AssertionError(message)
