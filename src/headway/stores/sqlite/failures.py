"""What SQLite's errors mean to a caller of the store."""

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
"""Whatever SQLite or its wrapper raises."""

Busy = apsw.BusyError
"""A lock of SQLite's own was not given in time."""

ReadOnly = apsw.ReadOnlyError
"""The connection may not write what the operation needs, such as the rollback of a journal."""

_BROKEN = (apsw.IOError, apsw.CorruptError, apsw.NotADBError, apsw.CantOpenError, apsw.NoMemError)


def is_broken(error: BaseException) -> bool:
    """Whether the connection must not be used any more: it is closed and opened anew.

    After a failed fsync the kernel may have dropped the pages, so that a second try would report
    a success that is none.

    Source: https://wiki.postgresql.org/wiki/Fsync_Errors
    """
    return isinstance(error, _BROKEN)


def explain(error: BaseException, path: str, *, committing: bool) -> StoreError | InvariantBroken:
    """The error of Headway's tree that says what happened and how to mend it.

    Args:
        error: from SQLite.
        path: of the database.
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
        "another process holds its write lock for too long",
    ),
    (
        (apsw.ReadOnlyError, apsw.PermissionsError, apsw.CantOpenError),
        StoreUnavailable,
        "the file and its folder must be there and writable",
    ),
    ((apsw.IOError,), StoreUnavailable, "the device failed"),
    ((apsw.NoMemError, apsw.InterruptError, apsw.TooBigError), StoreUnavailable, "try again"),
)
