"""The way to the server: statements are sent in one go, and their answers read together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import RawCursor

from headway.stores.postgres.connection import Connection, connect, silence_ms
from headway.stores.postgres.options import PostgresOptions
from headway.stores.postgres.statement import Row, Rows, resolve
from headway.stores.postgres.wire import Wire

Sent = tuple[str, Sequence[Any]]
"""A text and what it is bound to."""
SYNC = "SYNC"
"""In a batch: what follows is another step."""


class Link:
    """A connection as a namespace uses it.

    Args:
        connection: each statement of which stands for itself until BEGIN.
        silence_ms: for so long the server may say nothing; None for as long as it likes.

    Attributes:
        trips: how often the server was waited for.
    """

    def __init__(
        self, connection: Connection, namespace: str, silence_ms: int | None = None
    ) -> None:
        self.connection = connection
        self.trips = 0
        self._namespace = namespace
        prepare = connection.prepare_threshold is not None
        self._wire = Wire(connection, prepare=prepare, silence_ms=silence_ms)
        self._texts: dict[str, bytes | None] = {SYNC: None}

    def _text(self, statement: str) -> bytes | None:
        text = self._texts.get(statement)
        if text is None and statement != SYNC:
            text = self._texts[statement] = resolve(statement, self._namespace).encode()
        return text

    def run(self, batch: Sequence[Sent]) -> list[Rows]:
        """Execute statements in order, in one round trip.

        Outside a step they are one step by themselves: all of them, or none.

        Returns:
            The rows of each; none for one that returns none.

        Raises:
            psycopg.Error: the first that failed; those after it were not executed.
        """
        self.trips += 1
        text = self._text
        return self._wire.run([(text(statement), bound) for statement, bound in batch])

    def alive(self) -> bool:
        """Return whether it can be used, as far as that can be told without asking the server."""
        return not self.broken and self._wire.alive()

    @property
    def broken(self) -> bool:
        """Whether nothing can be sent any more."""
        return self.connection.closed or self.connection.broken

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


def open_link(options: PostgresOptions) -> Link:
    """A link of the store's own.

    Raises:
        StoreError: the server cannot be reached, or refuses; nothing was written.
        InvariantBroken: its refusal means a bug.
    """
    return Link(connect(options), options.namespace, silence_ms(options))


class GuestLink(Link):
    """A link over a connection of the caller, who keeps it."""

    def run(self, batch: Sequence[Sent]) -> list[Rows]:
        """Execute statements in order, by the driver's own means; see `Link.run`."""
        with self.connection.pipeline():
            cursors = [self._execute(text, bound) for text, bound in batch]
        return [cursor.fetchall() if cursor.description else [] for cursor in cursors]

    def _execute(self, text: str, bound: Sequence[Any]) -> RawCursor[Row]:
        cursor = RawCursor(self.connection)
        cursor.execute(self._text(text) or b"", bound or None, binary=True)
        return cursor

    def alive(self) -> bool:
        """Whose connection it is looks after it."""
        return True

    def close(self) -> None:
        """Nothing is ours to close."""
