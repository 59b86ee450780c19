"""Connections to a database file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from headway.contract.clock import Clock
from headway.core.errors import InvariantBroken, StoreCorrupt, StoreError, StoreUnavailable
from headway.stores.sqlite.database import Database, open_database
from headway.stores.sqlite.failures import Busy, Failure, ReadOnly, explain
from headway.stores.sqlite.options import SqliteOptions
from headway.stores.sqlite.schema import is_empty, migrate_schema
from headway.stores.sqlite.timing import CLOCK_LIMIT_MS, monotonic, pause, skew_ms

_CACHE_KIB = 65_536
_WAL_BYTES = 67_108_864
_HEADER = 512
"""Bytes of the smallest database."""


def create(options: SqliteOptions, clock: Clock | None = None) -> None:
    """Create the file if it does not exist, readable only by its owner, with its schema.

    Args:
        clock: of the store, if it is not the machine's. A file that is created under another
            clock, as in a test, is never compared with the machine's.

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
        message = f"the database {path} cannot be created: {error.strerror}"
        raise StoreUnavailable(message, hint="its folder must exist and be writable") from error


def _refuse_scrap(path: Path) -> None:
    if not path.is_file():
        message = f"{path} is not a regular file"
        raise StoreUnavailable(message, hint="give the path of a file, such as its folder and name")
    # SQLite treats a file shorter than its header as empty, and would overwrite it.
    size = path.stat().st_size
    if 0 < size < _HEADER:
        message = f"the file {path} of {size} bytes is not a database"
        raise StoreCorrupt(message, hint="give the path of another file; nothing was changed")


def _check(options: SqliteOptions, clock: Clock | None) -> None:
    try:
        # Read only: closing it leaves a file of another program exactly as it was.
        empty = _is_empty(options, write=False)
    except ReadOnly:
        # A process was killed while it wrote; only a writer may roll its journal back.
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
    """Bring the file's schema up to date; the file is created if it does not exist.

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
        StoreUnavailable: it cannot be opened.
        StoreCorrupt: it is damaged.
    """
    with _explained(options):
        db = open_database(options.path, write=True)
        if db.readonly("main"):
            message = f"the database {options.path} is read-only"
            raise StoreUnavailable(message, hint="make it writable for this user")
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
        message = f"the database is in journal mode {mode!r} and does not become WAL"
        raise StoreUnavailable(message, hint="it must be on a local disk, not on a network share")


def _retry_while_busy(action: Callable[[], None], patience_ms: int) -> None:
    # Changing the journal mode does not use the busy handler.
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


class _explained:  # noqa: N801  (reads as the phrase that it is)
    """Converts SQLite's errors to Headway's."""

    def __init__(self, options: SqliteOptions) -> None:
        self._path = str(options.path)

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Convert the error.

        Raises:
            StoreError: the meaning of SQLite's error.
            InvariantBroken: it is a bug.
        """
        if isinstance(error, Failure):
            raised: StoreError | InvariantBroken = explain(error, self._path, committing=False)
            raise raised from error
