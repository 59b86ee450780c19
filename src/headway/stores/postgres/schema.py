"""The schema: numbered migrations, one file each, and the check when a store is opened.

A migration should only add: new tables, new columns with a default, new indexes. Programs that know
fewer migrations then continue to work. A migration that removes something declares in its first
line the oldest schema whose programs still support the store:

    -- programs from 3

To upgrade, migrate the schema first, then upgrade the programs one after another.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import psycopg
from psycopg import sql
from psycopg.errors import DeadlockDetected, InsufficientPrivilege

from headway.core.errors import SchemaMismatch
from headway.stores.postgres.numbers import OLDEST_PROGRAM
from headway.stores.postgres.options import PostgresOptions
from headway.stores.sql.statement import EPOCH, IDENTITY, SCHEMA

NEEDED = 1
"""The oldest schema that this program supports."""

MOST_DEADLOCKS = 10
"""Maximum number of attempts of a migration that deadlocks."""
LOCK_SECONDS = 10
"""Seconds that a migration waits for a table in use; all other statements queue behind it."""

_OLDEST = re.compile(r"-- programs from (\d+)\s")

_TURN = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
_FOUND = """
SELECT (SELECT count(*) FROM pg_class WHERE relnamespace = n.oid),
       EXISTS (SELECT FROM pg_class WHERE relnamespace = n.oid AND relname = 'number')
FROM pg_namespace AS n WHERE nspname = %s
"""
_VERSION = "SELECT key, n FROM {}.number WHERE key = ANY(%s)"
_PUT = "INSERT INTO {}.number VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET n = excluded.n"

Connection = psycopg.Connection[Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Migration:
    """One file; its statements run with only the namespace's schema on the search path.

    Attributes:
        number: the schema version that it creates.
        oldest_program: programs that know at least this version support the store after it.
    """

    number: int
    oldest_program: int
    statements: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Version:
    """The version of a namespace's schema.

    Attributes:
        number: number of its last migration; 0 for none.
        oldest_program: programs that know at least this version support it.
    """

    number: int
    oldest_program: int


def shipped() -> Traversable:
    """Return the folder of this program's migrations."""
    return files("headway.stores.postgres") / "migrations"


def migrations(folder: Traversable | None = None) -> tuple[_Migration, ...]:
    """Return the migrations in a folder (default: this program's), in order."""
    found = [one for one in (folder or shipped()).iterdir() if one.name.endswith(".sql")]
    read: list[_Migration] = []
    oldest = 1
    for file in sorted(found, key=lambda one: one.name):
        statements = file.read_text(encoding="utf-8")
        if (declared := _OLDEST.match(statements)) is not None:
            oldest = int(declared[1])
        read.append(
            _Migration(number=int(file.name[:4]), oldest_program=oldest, statements=statements)
        )
    return tuple(read)


@cache
def latest() -> int:
    """Return the schema version that this program creates."""
    return migrations()[-1].number


def version_of(connection: Connection, options: PostgresOptions) -> Version:
    """Return the version of a namespace; 0 if it does not exist or is empty.

    Raises:
        SchemaMismatch: the schema of that name belongs to another program.
    """
    found = connection.execute(_FOUND, (options.namespace,)).fetchone()
    count, ours = (0, False) if found is None else found
    if not count:
        return Version(number=0, oldest_program=0)
    held: dict[int, int] = {}
    if ours:
        query = sql.SQL(_VERSION).format(sql.Identifier(options.namespace))
        held = dict(connection.execute(query, ([SCHEMA, OLDEST_PROGRAM, IDENTITY],)).fetchall())
    if IDENTITY not in held:
        message = f"the schema {options.namespace!r} of {options.place} does not belong to Headway"
        raise SchemaMismatch(message, hint="use another ?namespace=; nothing was changed")
    number = held.get(SCHEMA, 0)
    return Version(number=number, oldest_program=held.get(OLDEST_PROGRAM, number))


def check_version(
    version: Version, options: PostgresOptions, *, knows: int | None = None, needs: int = NEEDED
) -> None:
    """Validate that a program supports a schema.

    Args:
        knows: the last migration that the program knows (default: this program's).
        needs: the oldest schema that it supports.

    Raises:
        SchemaMismatch: the schema is missing, too old, or too new.
    """
    known = latest() if knows is None else knows
    where = options.place
    if version.number == 0:
        message = f"{where} contains no store yet"
        raise SchemaMismatch(message, hint="run `headway migrate` to create it")
    if version.number < needs:
        message = f"{where} has schema {version.number}, and this program needs {needs}"
        raise SchemaMismatch(message, hint="run `headway migrate`; nothing was changed")
    if version.number > known and version.oldest_program > known:
        message = (
            f"{where} has schema {version.number}, which needs a program for"
            f" {version.oldest_program} or newer; this one supports {known}"
        )
        raise SchemaMismatch(message, hint="upgrade Headway; nothing was changed")


def ensure_schema(connection: Connection, options: PostgresOptions) -> None:
    """Validate that this program supports a namespace; migrate it if allowed.

    Once a namespace is migrated, a role without the privilege to change tables is enough.

    Args:
        options: if `migrate` is off, nothing is changed.

    Raises:
        SchemaMismatch: the schema is not supported; nothing was changed.
        InsufficientPrivilege: there is no store yet, and the role may not create one.
    """
    with connection.transaction():
        version = version_of(connection, options)
    if version.number < latest() and options.migrate:
        try:
            migrate_schema(connection, options)
        except InsufficientPrivilege:
            # Another role owns the tables; the current schema may be supported.
            if version.number < NEEDED:
                raise
        else:
            return
    check_version(version, options)


def migrate_schema(
    connection: Connection, options: PostgresOptions, folder: Traversable | None = None
) -> tuple[int, int]:
    """Migrate a namespace to the latest schema, each migration in its own transaction.

    Any number of processes may call this at once: each transaction takes a lock, and checks the
    version again. (The lock belongs to the transaction, not to the session, so that it works behind
    a pooler.)

    Args:
        folder: folder of the migrations (default: this program's).

    Returns:
        The old and the new version.

    Raises:
        SchemaMismatch: the schema belongs to another program, or is newer; nothing was changed.
        DeadlockDetected: every attempt deadlocked with programs; earlier migrations are kept.
    """
    steps = migrations(folder)
    before: int | None = None
    deadlocks = 0
    while True:
        try:
            with connection.transaction():
                _take_turn(connection, options)
                version = version_of(connection, options)
                if before is None:
                    before = version.number
                if version.number:
                    check_version(version, options, knows=steps[-1].number, needs=0)
                left = [step for step in steps if step.number > version.number]
                if not left:
                    return before, version.number
                _run(connection, options, left[0], first=version.number == 0)
        except DeadlockDetected:
            # A migration changes several tables while programs read several; it was rolled back.
            deadlocks += 1
            if deadlocks == MOST_DEADLOCKS:
                raise


def _take_turn(connection: Connection, options: PostgresOptions) -> None:
    # Another migration may be running; wait for it without a limit.
    connection.execute("SET LOCAL lock_timeout = 0")
    connection.execute("SET LOCAL statement_timeout = 0")
    connection.execute(_TURN, (f"headway migrate {options.namespace}",))
    connection.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'".encode())


def _run(
    connection: Connection, options: PostgresOptions, step: _Migration, *, first: bool
) -> None:
    schema = sql.Identifier(options.namespace)
    if first and not _has_schema(connection, options):
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(schema))
    connection.execute(sql.SQL("SET LOCAL search_path = {}").format(schema))
    connection.execute(step.statements.encode(), prepare=False)
    numbers = {SCHEMA: step.number, OLDEST_PROGRAM: step.oldest_program}
    if first:
        numbers |= {IDENTITY: secrets.randbits(62), EPOCH: 1}
    put = sql.SQL(_PUT).format(schema)
    for key, n in numbers.items():
        connection.execute(put, (key, n))


def _has_schema(connection: Connection, options: PostgresOptions) -> bool:
    # CREATE SCHEMA IF NOT EXISTS needs the privilege to create schemas even if the schema exists.
    return connection.execute(_FOUND, (options.namespace,)).fetchone() is not None
