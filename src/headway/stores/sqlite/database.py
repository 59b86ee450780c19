"""The part of the SQLite wrapper that the store uses, with its types; rows are tuples."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import apsw

STATEMENTS = 256
"""Prepared statements that a connection keeps."""


PASSIVE = apsw.SQLITE_CHECKPOINT_PASSIVE
"""Writes back as much of the log as can be without waiting for anybody."""

WalHook = Callable[[Any, str, int], int]


class Found(Protocol):
    """What a statement found."""

    @property
    def get(self) -> Any:  # noqa: ANN401  (what it is, its statement says)
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
        """Executes a statement."""
        ...

    def executemany(self, statements: str, sequenceofbindings: Iterable[Sequence[Any]]) -> Found:
        """Executes a statement for each of some bindings."""
        ...

    def pragma(self, name: str, value: Any = ...) -> Any:  # noqa: ANN401  (each pragma has its type)
        """Reads or sets a pragma."""
        ...

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        ...

    def data_version(self) -> int:
        """Another number after anybody's commit."""
        ...

    def total_changes(self) -> int:
        """Rows that this connection has written."""
        ...

    def readonly(self, name: str) -> bool:
        """Whether it cannot be written."""
        ...

    def set_busy_timeout(self, milliseconds: int) -> None:
        """For how long it waits for a lock."""
        ...

    def set_wal_hook(self, callable: WalHook) -> None:  # noqa: A002  (the wrapper's own name)
        """After each commit, tells the connection, "main", and the pages in the log."""
        ...

    def wal_checkpoint(self, dbname: str | None = None, mode: int = ...) -> tuple[int, int]:
        """Writes the log back; (pages in it, pages written back)."""
        ...

    def close(self) -> None:
        """Closes it."""
        ...


def open_database(path: Path, *, write: bool) -> Database:
    """Opens a file that is there.

    Args:
        path: of the file.
        write: whether it may be written; if not, it is left exactly as it is.

    Returns:
        The connection.
    """
    flags = apsw.SQLITE_OPEN_READWRITE if write else apsw.SQLITE_OPEN_READONLY
    opened = apsw.Connection(str(path), flags=flags, statementcachesize=STATEMENTS)
    return cast("Database", opened)


def text_list(values: Sequence[str]) -> object:
    """Texts as SQLite reads a list in one go; at least one."""
    return _carray(tuple(values))


def number_list(values: Sequence[int]) -> object:
    """Whole numbers as SQLite reads a list in one go; at least one."""
    return _carray(array("q", values))


_carray = cast("Any", apsw).carray
