"""The schema: numbered migrations, one file each, and the check whenever a file is opened."""

from __future__ import annotations

import secrets
from functools import cache
from importlib.resources import files

from headway.core.errors import SchemaMismatch
from headway.stores.sqlite.database import Database
from headway.stores.sqlite.numbers import EPOCH, FREE_CLOCK, IDENTITY, SCHEMA

APPLICATION_ID = 0x48445759
"""Marks a database file as Headway's ("HDWY")."""

_IS_EMPTY = "SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema)"
_PUT = "INSERT INTO number VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET n = excluded.n"


def migrations() -> list[tuple[int, str]]:
    """Return all migrations, as (number, statements), in order."""
    folder = files("headway.stores.sqlite") / "migrations"
    found = [one for one in folder.iterdir() if one.name.endswith(".sql")]
    return sorted((int(one.name[:4]), one.read_text(encoding="utf-8")) for one in found)


@cache
def latest() -> int:
    """Return the schema version of this program."""
    return migrations()[-1][0]


def version_of(db: Database, path: str) -> int:
    """Return the version of a file's schema; 0 for an empty file.

    Args:
        db: a connection to it, in a transaction, because another process may create the schema
            between two of the statements here.

    Returns:
        The number of the last migration.

    Raises:
        SchemaMismatch: the file belongs to another program, or has a later schema.
    """
    application, version = db.pragma("application_id"), db.pragma("user_version")
    if application == 0 and version == 0 and db.execute(_IS_EMPTY).get:
        return 0
    if application != APPLICATION_ID:
        message = f"{path} is a SQLite database, but not one of Headway"
        raise SchemaMismatch(message, hint="give the path of another file; nothing was changed")
    if version > latest():
        message = f"{path} has schema {version}, and this program knows {latest()}"
        raise SchemaMismatch(message, hint="upgrade Headway; nothing was changed")
    return version


def is_empty(db: Database, path: str) -> bool:
    """Return whether a file has no schema yet.

    Raises:
        SchemaMismatch: the file is not Headway's, or its schema is older or newer.
    """
    db.execute("BEGIN")
    try:
        version = version_of(db, path)
    finally:
        db.execute("ROLLBACK")
    if 0 < version < latest():
        message = f"{path} has schema {version}, and this program needs {latest()}"
        raise SchemaMismatch(message, hint="stop its workers, then run `headway migrate`")
    return version == 0


def migrate_schema(db: Database, path: str, *, free_clock: bool = False) -> tuple[int, int]:
    """Bring a file to the latest schema, in one step.

    Args:
        free_clock: whether a file that is created now has its own clock, as in a test.

    Returns:
        The old and the new version.

    Raises:
        SchemaMismatch: the file is not Headway's or newer; nothing was written.
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have migrated it before this one got the lock.
        before = version_of(db, path)
        for number, statements in migrations():
            if number > before:
                db.execute(statements)
        if before < latest():
            _sign(db, first=before == 0, free_clock=free_clock)
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")
    return before, latest()


def _sign(db: Database, *, first: bool, free_clock: bool) -> None:
    db.pragma("application_id", APPLICATION_ID)
    db.pragma("user_version", latest())
    db.execute(_PUT, (SCHEMA, latest()))
    if first:
        db.execute(_PUT, (IDENTITY, secrets.randbits(62)))
        db.execute(_PUT, (EPOCH, 1))
        if free_clock:
            db.execute(_PUT, (FREE_CLOCK, 1))
