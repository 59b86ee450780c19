"""Connections of callers, as their frameworks provide them."""

from __future__ import annotations

from collections.abc import Callable

import psycopg


class LikeDjango:
    """Like Django's connection wrapper: connects lazily, and reports the commit."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self.connection: psycopg.Connection | None = None
        self._calls: list[Callable[[], object]] = []

    def ensure_connection(self) -> None:
        if self.connection is None:
            self.connection = psycopg.connect(self._conninfo, autocommit=True)

    def __enter__(self) -> LikeDjango:
        """Start a transaction, as `transaction.atomic()` does."""
        self.ensure_connection()
        assert self.connection is not None
        self.connection.autocommit = False
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        assert self.connection is not None
        if kind is None:
            self.connection.commit()
        else:
            self.connection.rollback()
        self.connection.autocommit = True
        calls, self._calls = self._calls, []
        if kind is None:
            for call in calls:
                call()

    def on_commit(self, call: Callable[[], object]) -> None:
        assert self.connection is not None
        if self.connection.autocommit:
            call()
        else:
            self._calls.append(call)

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
