"""Namespaces of a PostgreSQL that are used again: to empty one is far quicker than to make one."""

from __future__ import annotations

from itertools import count

import psycopg

from headway.stores.postgres.numbers import EPOCH, IDENTITY, OLDEST_PROGRAM, SCHEMA

_EMPTY = """
DO $$
DECLARE one record;
BEGIN
    FOR one IN SELECT c.relname, c.relkind FROM pg_class c
        WHERE c.relnamespace = '"{name}"'::regnamespace AND c.relkind IN ('r', 'S')
    LOOP
        IF one.relkind = 'S' THEN
            EXECUTE format('ALTER SEQUENCE "{name}".%I RESTART', one.relname);
        ELSIF one.relname <> 'number' THEN
            EXECUTE format('DELETE FROM "{name}".%I', one.relname);
        END IF;
    END LOOP;
    DELETE FROM "{name}".number WHERE key NOT IN ({kept});
    UPDATE "{name}".number SET n = (random() * 9e15)::bigint WHERE key = {identity};
    UPDATE "{name}".number SET n = 1 WHERE key = {epoch};
END $$
"""


class Namespaces:
    """The namespaces of one database; each is lent to one case at a time.

    Args:
        database: its URL.
    """

    def __init__(self, database: str) -> None:
        self._database = database
        self._numbers = count(1)
        self._empty: list[str] = []
        self._lent: list[str] = []

    def url(self) -> str:
        """The URL of a store that is empty."""
        name = self._empty.pop() if self._empty else f"case_{next(self._numbers)}"
        self._lent.append(name)
        mark = "&" if "?" in self._database else "?"
        return f"{self._database}{mark}namespace={name}"

    def take_back(self) -> None:
        """Empties what was lent; its stores are closed."""
        with psycopg.connect(self._database, autocommit=True) as connection:
            for name in self._lent:
                self._take_back(connection, name)
        self._lent.clear()

    def _take_back(self, connection: psycopg.Connection, name: str) -> None:
        found = connection.execute("SELECT to_regclass(%s)", (f'"{name}".number',)).fetchone()
        if found is None or found[0] is None:
            return  # nothing was made of it
        kept = ", ".join(map(str, (SCHEMA, OLDEST_PROGRAM, IDENTITY, EPOCH)))
        text = _EMPTY.format(name=name, kept=kept, identity=IDENTITY, epoch=EPOCH)
        connection.execute(text.encode())
        self._empty.append(name)
