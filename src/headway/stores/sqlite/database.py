"""Types for the part of the SQLite wrapper that the store uses; rows are tuples."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import apsw

STATEMENTS = 256
"""Prepared statements that a connection keeps."""


PASSIVE = apsw.SQLITE_CHECKPOINT_PASSIVE
"""Writes back as much of the log as possible without waiting for other connections."""

WalHook = Callable[[Any, str, int], int]


class Found(Protocol):
    """The result of a statement."""

    @property
    def get(self) -> Any:  # noqa: ANN401  (depends on the statement)
        """The only value, the only row, or all rows; None for nothing."""
        ...

    def fetchone(self) -> Any:  # noqa: ANN401  (what it is, its statement says)
        """The next row, or None."""
        ...

    def fetchall(self) -> list[Any]:
        """All rows."""
        ...

    def __iter__(self) -> Iterator[Any]:
        """Row by row."""
        ...


class Database(Protocol):
    """A connection to a database file."""

    def execute(self, statements: str, bindings: Sequence[Any] = ...) -> Found:
        """Execute a statement."""
        ...

    def executemany(self, statements: str, sequenceofbindings: Iterable[Sequence[Any]]) -> Found:
        """Execute a statement for each of some bindings."""
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
        """Return whether it cannot be written."""
        ...

    def set_busy_timeout(self, milliseconds: int) -> None:
        """Set for how long it waits for a lock."""
        ...

    def set_wal_hook(self, callable: WalHook) -> None:  # noqa: A002  (the wrapper's own name)
        """Set a function that each commit calls with the connection, "main" and the log's pages."""
        ...

    def wal_checkpoint(self, dbname: str | None = None, mode: int = ...) -> tuple[int, int]:
        """Write the log back; (pages in it, pages written back)."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


def open_database(path: Path, *, write: bool) -> Database:
    """Open an existing file.

    Args:
        write: whether it may be written; if not, not a byte of it changes.

    Returns:
        The connection.
    """
    flags = apsw.SQLITE_OPEN_READWRITE if write else apsw.SQLITE_OPEN_READONLY
    opened = apsw.Connection(str(path), flags=flags, statementcachesize=STATEMENTS)
    return cast("Database", opened)


def text_list(values: Sequence[str]) -> object:
    """Return texts as one parameter that SQLite reads as a list; at least one."""
    return _carray(tuple(values))


def number_list(values: Sequence[int]) -> object:
    """Return whole numbers as one parameter that SQLite reads as a list; at least one."""
    return _carray(array("q", values))


_carray = cast("Any", apsw).carray
