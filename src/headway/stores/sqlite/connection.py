"""The database file: creation, connections, and migration to the schema of this program."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path

from headway.contract.store import Clock
from headway.core.errors import (
    SchemaMismatch,
    StoreCorrupt,
    StoreMisconfigured,
)
from headway.stores.sql.statement import EPOCH, IDENTITY, SCHEMA
from headway.stores.sqlite.caches import FREE_CLOCK, WRITE
from headway.stores.sqlite.database import (
    Busy,
    Database,
    DriverError,
    ReadOnly,
    explain,
    not_opened,
    open_database,
)
from headway.stores.sqlite.options import SqliteOptions
from headway.stores.sqlite.timing import CLOCK_LIMIT_MS, monotonic, pause, skew_ms

APPLICATION_ID = 0x48445759
"""Marks a database file as Headway's ("HDWY")."""

_IS_EMPTY = "SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema)"


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
        db: a connection to the file, in a transaction, because another process may create the
            schema between two statements of this function.

    Raises:
        SchemaMismatch: the file belongs to another program, or has a later schema.
    """
    application, version = db.pragma("application_id"), db.pragma("user_version")
    if application == 0 and version == 0 and db.execute(_IS_EMPTY).get:
        return 0
    if application != APPLICATION_ID:
        message = f"{path} is a SQLite database, but not one of Headway"
        raise SchemaMismatch(message, hint="use another path; nothing was changed")
    if version > latest():
        message = f"{path} has schema {version}, but this program only supports {latest()}"
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
    """Migrate a file to the latest schema, in one step.

    Args:
        free_clock: whether a file that is created now has its own clock, as in a test.

    Returns:
        The old and the new version.

    Raises:
        SchemaMismatch: the file is not Headway's, or its schema is newer; nothing was written.
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have migrated the file before this one got the lock.
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
    db.execute(WRITE, (SCHEMA, latest()))
    if first:
        db.execute(WRITE, (IDENTITY, secrets.randbits(62)))
        db.execute(WRITE, (EPOCH, 1))
        if free_clock:
            db.execute(WRITE, (FREE_CLOCK, 1))


_CACHE_KIB = 65_536
_WAL_BYTES = 67_108_864
_HEADER = 512
"""Bytes of the smallest database."""


def create(options: SqliteOptions, clock: Clock | None = None) -> None:
    """Create the file if it does not exist, readable only by its owner, with its schema.

    Args:
        clock: the store's clock, if it is not the machine's. The clock of a file that is created
            under another clock, as in a test, is never compared with the machine's.

    Raises:
        StoreUnavailable: it cannot be created or written.
        StoreCorrupt: it is not a database, or a damaged one; it was not changed.
        SchemaMismatch: it belongs to another program, or its schema is older or newer; it was not
            changed.
    """
    _make(options.path)
    with _explained(options):
        _check(options, clock)


def _make(path: Path) -> None:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        _refuse_scrap(path)
    except OSError as error:
        what = f"the database {path} cannot be created"
        raise not_opened(what, error, "its folder must exist and be writable") from error


def _refuse_scrap(path: Path) -> None:
    if not path.is_file():
        message = f"{path} is not a regular file"
        raise StoreMisconfigured(message, hint="pass the path of a file, with its folder and name")
    # SQLite treats a file shorter than its header as empty, and would overwrite it.
    size = path.stat().st_size
    if 0 < size < _HEADER:
        message = f"the file {path} of {size} bytes is not a database"
        raise StoreCorrupt(message, hint="use another path; nothing was changed")


def _check(options: SqliteOptions, clock: Clock | None) -> None:
    try:
        # Read-only, so that closing it leaves a file of another program unchanged.
        empty = _is_empty(options, write=False)
    except ReadOnly:
        # A process was killed while it wrote; only a connection that writes may roll back.
        empty = _is_empty(options, write=True)
    if empty:
        skew = 0 if clock is None else skew_ms(clock, options.path)
        migrate(options, free_clock=skew is not None and abs(skew) > CLOCK_LIMIT_MS)


def _is_empty(options: SqliteOptions, *, write: bool) -> bool:
    db = open_database(options.path, write=write)
    try:
        db.set_busy_timeout(options.patience_ms)
        return is_empty(db, str(options.path))
    finally:
        db.close()


def migrate(options: SqliteOptions, *, free_clock: bool = False) -> tuple[int, int]:
    """Migrate the file to the latest schema; create it if it does not exist.

    Args:
        free_clock: whether a file that is created now has its own clock, as in a test.

    Returns:
        The old and the new version.
    """
    _make(options.path)
    with _explained(options):
        db = open_database(options.path, write=True)
        try:
            db.set_busy_timeout(options.patience_ms)
            return migrate_schema(db, str(options.path), free_clock=free_clock)
        finally:
            db.close()


def connect(options: SqliteOptions) -> Database:
    """Open a connection to an existing file.

    Raises:
        StoreMisconfigured: it is read-only.
        StoreUnavailable: it cannot be opened.
        StoreCorrupt: it is damaged.
    """
    with _explained(options):
        db = open_database(options.path, write=True)
        if db.readonly("main"):
            message = f"the database {options.path} is read-only"
            raise StoreMisconfigured(message, hint="make it writable for this user")
        db.set_busy_timeout(options.patience_ms)
        _retry_while_busy(lambda: _use_wal(db), options.patience_ms)
        db.pragma("synchronous", options.synchronous)
        db.pragma("cache_size", -_CACHE_KIB)
        db.pragma("temp_store", "memory")
        db.pragma("cell_size_check", True)
        db.pragma("trusted_schema", False)
        db.pragma("wal_autocheckpoint", 0)
        db.pragma("journal_size_limit", _WAL_BYTES)
        return db


def _use_wal(db: Database) -> None:
    mode = db.pragma("journal_mode", "wal")
    if mode != "wal":
        message = f"the database is in journal mode {mode!r} and cannot be switched to WAL"
        raise StoreMisconfigured(message, hint="it must be on a local disk, not on a network share")


def _retry_while_busy(action: Callable[[], None], patience_ms: int) -> None:
    # SQLite does not call the busy handler when the journal mode is changed.
    end = monotonic() + patience_ms / 1000
    while True:
        try:
            action()
        except Busy:
            if monotonic() >= end:
                raise
            pause(0.005)
        else:
            return


@contextmanager
def _explained(options: SqliteOptions) -> Generator[None]:
    try:
        yield
    except DriverError as error:
        # SQLite's errors become Headway's.
        raise explain(error, str(options.path), committing=False) from error
