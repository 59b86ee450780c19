"""Translation of SQLite's errors into Headway's."""

from __future__ import annotations

import apsw

from headway.core.errors import (
    InvariantBroken,
    OutcomeUnknown,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreUnavailable,
)

Failure = apsw.Error
"""Base class of all errors of SQLite and its wrapper."""

Busy = apsw.BusyError
"""SQLite did not get one of its own locks in time."""

ReadOnly = apsw.ReadOnlyError
"""The connection may not write, for example to roll back a journal."""

_BROKEN = (apsw.IOError, apsw.CorruptError, apsw.NotADBError, apsw.CantOpenError, apsw.NoMemError)


def is_broken(error: BaseException) -> bool:
    """Return whether the connection must be closed and opened again.

    After a failed fsync the kernel may have dropped the pages, so that a second try would falsely
    report success.

    Source: https://wiki.postgresql.org/wiki/Fsync_Errors
    """
    return isinstance(error, _BROKEN)


def explain(error: BaseException, path: str, *, committing: bool) -> StoreError | InvariantBroken:
    """Return the error of Headway's tree for an error of SQLite.

    Args:
        committing: whether COMMIT itself failed, so that the step may have been written.

    Returns:
        The error to raise.
    """
    what = f"the database {path}: {error}"
    if isinstance(error, apsw.IOError) and committing:
        return OutcomeUnknown(what, hint="the device failed at the commit; repeat the call")
    for kinds, make, hint in _MEANINGS:
        if isinstance(error, kinds):
            return make(what, hint=f"{hint}; nothing was written")
    what = f"{what} ({type(error).__name__})"
    return InvariantBroken(what, hint="this is a bug in Headway; nothing was written")


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
        StoreUnavailable,
        "the file and its folder must exist and be writable",
    ),
    ((apsw.IOError,), StoreUnavailable, "the device failed"),
    ((apsw.NoMemError, apsw.InterruptError, apsw.TooBigError), StoreUnavailable, "try again"),
)
