"""The part of the SQLite wrapper that the store uses: connections, list parameters, errors."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from errno import EROFS
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, cast

import apsw

from headway.core.errors import (
    InvariantBroken,
    OutcomeUnknown,
    SchemaMismatch,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreMisconfigured,
    StoreUnavailable,
)

STATEMENTS = 256
"""Most prepared statements that a connection caches."""


PASSIVE = apsw.SQLITE_CHECKPOINT_PASSIVE
"""Writes back as much of the WAL as possible without waiting for other connections."""

WalHook = Callable[[Any, str, int], int]


class _Found(Protocol):
    """The result of a statement."""

    @property
    def get(self) -> Any:  # noqa: ANN401  (depends on the statement)
        """The only value, the only row, or all rows; None if there are no rows."""
        ...

    def fetchone(self) -> Any:  # noqa: ANN401  (depends on the statement)
        """The next row, or None."""
        ...

    def fetchall(self) -> list[Any]:
        """All rows."""
        ...

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the rows."""
        ...


class Database(Protocol):
    """A connection to a database file."""

    def execute(self, statements: str, bindings: Sequence[Any] = ...) -> _Found:
        """Execute a statement."""
        ...

    def executemany(self, statements: str, sequenceofbindings: Iterable[Sequence[Any]]) -> _Found:
        """Execute a statement once for each of the bindings."""
        ...

    def pragma(self, name: str, value: Any = ...) -> Any:  # noqa: ANN401  (each pragma has its type)
        """Read or set a pragma."""
        ...

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        ...

    def data_version(self) -> int:
        """Return a number that changes with every commit of another connection."""
        ...

    def total_changes(self) -> int:
        """Return how many rows this connection has written."""
        ...

    def readonly(self, name: str) -> bool:
        """Return whether the database cannot be written."""
        ...

    def set_busy_timeout(self, milliseconds: int) -> None:
        """Set how long the connection waits for a lock."""
        ...

    def set_wal_hook(self, callable: WalHook) -> None:  # noqa: A002  (the wrapper's own name)
        """Set a function that commits call with the connection, "main" and the WAL's pages."""
        ...

    def wal_checkpoint(self, dbname: str | None = None, mode: int = ...) -> tuple[int, int]:
        """Write the WAL back; return the numbers of pages in it and of pages written back."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


def open_database(path: Path, *, write: bool) -> Database:
    """Open an existing file.

    Args:
        write: whether it may be written; otherwise not a byte of it changes.
    """
    flags = apsw.SQLITE_OPEN_READWRITE if write else apsw.SQLITE_OPEN_READONLY
    opened = apsw.Connection(str(path), flags=flags, statementcachesize=STATEMENTS)
    return cast("Database", opened)


def text_list(values: Iterable[str]) -> object:
    """Return texts, at least one, as one parameter that SQLite reads as a list."""
    return _carray(tuple(values))


def number_list(values: Iterable[int]) -> object:
    """Return whole numbers, at least one, as one parameter that SQLite reads as a list."""
    return _carray(array("q", values))


_carray = cast("Any", apsw).carray


flat: Callable[[Iterable[Sequence[Any]]], Iterator[Any]] = chain.from_iterable
"""Returns the values of rows with one column."""

DriverError = apsw.Error
"""Base class of all errors of SQLite and its wrapper."""

Busy = apsw.BusyError
"""SQLite did not get one of its own locks in time."""

ReadOnly = apsw.ReadOnlyError
"""The connection may not write, for example to roll back a journal."""

_BROKEN = (apsw.IOError, apsw.CorruptError, apsw.NotADBError, apsw.CantOpenError, apsw.NoMemError)


def is_broken(error: BaseException) -> bool:
    """Return whether the connection must be closed and opened again.

    After a failed fsync the kernel may have dropped the pages, so a second fsync could falsely
    report success.

    Source: https://wiki.postgresql.org/wiki/Fsync_Errors
    """
    return isinstance(error, _BROKEN)


def explain(error: BaseException, path: str, *, committing: bool) -> StoreError | InvariantBroken:
    """Return Headway's error for an error of SQLite.

    Args:
        committing: whether COMMIT itself failed, so that the step may have been written.
    """
    what = f"the database {path}: {error}"
    if isinstance(error, apsw.IOError) and committing:
        return OutcomeUnknown(what, hint="the device failed at the commit; repeat the call")
    if isinstance(error, apsw.CantOpenError) and _may_write(Path(path)):
        hint = "this process, or the system, has too many files open; nothing was written"
        return StoreUnavailable(what, hint=hint)
    for kinds, make, hint in _MEANINGS:
        if isinstance(error, kinds):
            return make(what, hint=f"{hint}; nothing was written")
    if isinstance(error, apsw.SQLError) and str(error).startswith(_MISSING):
        hint = "another program has changed the file: restore a backup; nothing was written"
        return SchemaMismatch(what, hint=hint)
    what = f"{what} ({type(error).__name__})"
    return InvariantBroken(what, hint="this is a bug in Headway; nothing was written")


def _may_write(path: Path) -> bool:
    return os.access(path, os.R_OK | os.W_OK) and os.access(path.parent, os.W_OK)


def not_opened(message: str, error: OSError, hint: str) -> StoreUnavailable:
    """Return the error for a file that the system does not open."""
    lasting = isinstance(error, _LASTING) or error.errno == EROFS
    make = StoreMisconfigured if lasting else StoreUnavailable
    return make(f"{message}: {error.strerror}", hint=hint)


_LASTING = (PermissionError, FileNotFoundError, NotADirectoryError)
"""Errors of the system that no retry changes."""
_MISSING = ("no such table", "no such index")
"""Prefixes of SQLite's reports that part of the schema is missing."""
_MEANINGS: tuple[tuple[tuple[type[Exception], ...], type[StoreError], str], ...] = (
    ((apsw.FullError,), StoreFull, "free some space on its device"),
    ((apsw.CorruptError, apsw.NotADBError), StoreCorrupt, "stop, keep the file, restore a backup"),
    (
        (apsw.BusyError, apsw.LockedError),
        StoreUnavailable,
        "another process has held its write lock for too long",
    ),
    (
        (apsw.ReadOnlyError, apsw.PermissionsError, apsw.CantOpenError),
        StoreMisconfigured,
        "the file and its folder must exist and be writable",
    ),
    ((apsw.IOError,), StoreUnavailable, "the device failed"),
    ((apsw.NoMemError, apsw.InterruptError, apsw.TooBigError), StoreUnavailable, "try again"),
)
