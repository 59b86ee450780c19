"""The schema: numbered migrations, one file each, and the check whenever a store is opened.

A migration only adds, as far as it can: new tables, new columns that have a default, new indexes.
Programs that know fewer migrations go on then, beside those that know it. One that takes something
away says so in its first line, by the oldest schema whose programs still understand the store:

    -- programs from 3

The order of an upgrade is: schema first, then programs, one after another.
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
"""The oldest schema that this program works on."""

MOST_DEADLOCKS = 10
"""How often a migration is begun that the server undid because of a deadlock."""
LOCK_SECONDS = 10
"""How long a migration waits for a table in use; all other statements queue behind it."""

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
class Migration:
    """One file; its statements run with the namespace's schema alone on the search path.

    Attributes:
        number: the version that it makes.
        oldest_program: programs that know at least this version understand the store after it.
    """

    number: int
    oldest_program: int
    statements: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Version:
    """The version of a namespace's schema.

    Attributes:
        number: of its last migration; 0 for none.
        oldest_program: programs that know at least this version understand it.
    """

    number: int
    oldest_program: int


def shipped() -> Traversable:
    """Return the folder of this program's migrations."""
    return files("headway.stores.postgres") / "migrations"


def migrations(folder: Traversable | None = None) -> tuple[Migration, ...]:
    """Return all migrations of a folder, in order."""
    found = [one for one in (folder or shipped()).iterdir() if one.name.endswith(".sql")]
    read: list[Migration] = []
    oldest = 1
    for file in sorted(found, key=lambda one: one.name):
        statements = file.read_text(encoding="utf-8")
        if (said := _OLDEST.match(statements)) is not None:
            oldest = int(said[1])
        read.append(
            Migration(number=int(file.name[:4]), oldest_program=oldest, statements=statements)
        )
    return tuple(read)


@cache
def latest() -> int:
    """Return the version that this program makes."""
    return migrations()[-1].number


def version_of(connection: Connection, options: PostgresOptions) -> Version:
    """Return the version of a namespace; 0 if there is nothing yet.

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
        message = f"the schema {options.namespace!r} of {options.place} is not one of Headway"
        raise SchemaMismatch(message, hint="use another ?namespace=; nothing was changed")
    number = held.get(SCHEMA, 0)
    return Version(number=number, oldest_program=held.get(OLDEST_PROGRAM, number))


def check_version(
    version: Version, options: PostgresOptions, *, knows: int | None = None, needs: int = NEEDED
) -> None:
    """Accept a schema that a program can work on.

    Args:
        knows: the last migration that the program knows; None for this one's.
        needs: the oldest schema that it works on.

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
    """Make sure that this program can work on a namespace, as a store does when it is opened.

    Brings it up to date if it may; a role without the right to change tables is enough once that
    was done.

    Args:
        options: of the store; with `migrate` off nothing is changed.

    Raises:
        SchemaMismatch: it cannot; nothing was changed.
        InsufficientPrivilege: there is no store yet, and the role may not make one.
    """
    with connection.transaction():
        version = version_of(connection, options)
    if version.number < latest() and options.migrate:
        try:
            migrate_schema(connection, options)
        except InsufficientPrivilege:
            # Another role owns the tables; the schema as it is may do.
            if version.number < NEEDED:
                raise
        else:
            return
    check_version(version, options)


def migrate_schema(
    connection: Connection, options: PostgresOptions, folder: Traversable | None = None
) -> tuple[int, int]:
    """Bring a namespace to the latest schema, each migration in a transaction of its own.

    Any number may do it at once: each transaction takes its turn, and looks again. (The turn is
    the transaction's and not the session's, so that it holds behind a pooler as well.)

    Args:
        folder: of the migrations; this program's if not given.

    Returns:
        The old and the new version.

    Raises:
        SchemaMismatch: the schema is something else's, or newer; nothing was changed.
        DeadlockDetected: programs got in its way each time; the steps before this one are kept.
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
            # It changes several tables beside programs that read several: none of it was kept.
            deadlocks += 1
            if deadlocks == MOST_DEADLOCKS:
                raise


def _take_turn(connection: Connection, options: PostgresOptions) -> None:
    # Another migration may be running; wait for its end without a limit.
    connection.execute("SET LOCAL lock_timeout = 0")
    connection.execute("SET LOCAL statement_timeout = 0")
    connection.execute(_TURN, (f"headway migrate {options.namespace}",))
    connection.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'".encode())


def _run(connection: Connection, options: PostgresOptions, step: Migration, *, first: bool) -> None:
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
    # CREATE SCHEMA IF NOT EXISTS needs the right to create schemas even if there is one.
    return connection.execute(_FOUND, (options.namespace,)).fetchone() is not None
