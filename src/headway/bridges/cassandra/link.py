"""The connection to Cassandra: the interface that the calendar uses."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Protocol

from headway.bridges.cassandra.settings import CassandraSettings
from headway.bridges.cassandra.tables import Cql

Values = Sequence[object]
Rows = Sequence[tuple[Any, ...]]

PAGE = 1_000
"""Rows of one page; each page is one step of the store."""


class Page(NamedTuple):
    """Rows of an answer, and where the next page begins; None after the last."""

    rows: Rows
    after: bytes | None


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def ms_of(moment: datetime) -> int:
    """A moment in ms UTC, of one as the driver reads it, which has no zone."""
    return (moment.replace(tzinfo=UTC) - _EPOCH) // _MS


class Link(Protocol):
    """What the calendar asks of Cassandra.

    A statement that reads and fails raises StoreUnavailable; one that writes, OutcomeUnknown: it
    may have been applied, and can be repeated.
    """

    @property
    def settings(self) -> CassandraSettings:
        """Of the calendar."""
        ...

    async def run(self, statement: Cql, values: Values = (), after: bytes | None = None) -> Page:
        """Run one statement; returns the page of its rows that begins there."""
        ...

    async def run_many(self, statement: Cql, each: Sequence[Values]) -> list[Rows]:
        """Run one statement with each of these values, a bounded number at a time.

        Returns:
            The rows of each, in their order.
        """
        ...


class OpenLink(Link, Protocol):
    """A link that its creator opens and closes."""

    async def open(self) -> None:
        """Connect, if the cluster answers; each use connects if that failed.

        Raises:
            InvalidValue: there is no such keyspace.
        """
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...
