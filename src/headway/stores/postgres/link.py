"""The way to the server: statements are sent in one go, and their answers read together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import RawCursor

from headway.stores.postgres.connection import Connection
from headway.stores.postgres.statement import Row, Rows, resolve

Sent = tuple[str, Sequence[Any]]
"""A text and what it is bound to."""


SYNC = "SYNC"
"""In a batch: what follows is another step."""


class Link:
    """A connection as a namespace uses it.

    Args:
        connection: each statement of which stands for itself until BEGIN.
        namespace: the schema.

    Attributes:
        connection: as given.
        trips: how often the server was waited for.
    """

    def __init__(self, connection: Connection, namespace: str) -> None:
        self.connection = connection
        self.namespace = namespace
        self.trips = 0
        self._texts: dict[str, bytes] = {}

    def text(self, statement: str) -> bytes:
        """The statement as the server reads it."""
        text = self._texts.get(statement)
        if text is None:
            text = self._texts[statement] = resolve(statement, self.namespace).encode()
        return text

    def run(self, batch: Sequence[Sent]) -> list[Rows]:
        """Executes statements in order, in one round trip.

        Outside a step they are one step by themselves: all of them, or none.

        Args:
            batch: what to execute.

        Returns:
            The rows of each; none for one that returns none.

        Raises:
            psycopg.Error: the first that failed; those after it were not executed.
        """
        self.trips += 1
        if len(batch) == 1:
            text, bound = batch[0]
            return [_rows(self._execute(text, bound))]
        cursors: list[RawCursor[Row] | None] = []
        with self.connection.pipeline() as pipeline:
            for text, bound in batch:
                if text is SYNC:
                    pipeline.sync()
                    cursors.append(None)
                else:
                    cursors.append(self._execute(text, bound))
        return [[] if cursor is None else _rows(cursor) for cursor in cursors]

    def _execute(self, text: str, bound: Sequence[Any]) -> RawCursor[Row]:
        cursor = RawCursor(self.connection)
        cursor.execute(self.text(text), bound or None, binary=True)
        return cursor

    @property
    def broken(self) -> bool:
        """Whether nothing can be sent any more."""
        return self.connection.closed or self.connection.broken

    def close(self) -> None:
        """Closes the connection."""
        self.connection.close()


def _rows(cursor: RawCursor[Row]) -> Rows:
    return cursor.fetchall() if cursor.description is not None else []


class GuestLink(Link):
    """The way through somebody else's connection, which stays theirs."""

    def close(self) -> None:
        """Nothing is ours to close."""
