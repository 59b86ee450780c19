"""The table of the starts that rates count."""

from __future__ import annotations

from collections.abc import Mapping

from headway.stores.sqlite.session import Session

_ADD = "INSERT INTO start VALUES (?, ?, ?) ON CONFLICT (gate, at) DO UPDATE SET n = n + excluded.n"
_PUT = "INSERT INTO start VALUES (?, ?, ?) ON CONFLICT (gate, at) DO UPDATE SET n = excluded.n"
_TRIM_SUM = "SELECT coalesce(sum(n), 0) FROM start WHERE gate = ? AND at <= ?"
_TRIM = "DELETE FROM start WHERE gate = ? AND at <= ?"
_TOTAL = "SELECT coalesce(sum(n), 0) FROM start WHERE gate = ? AND at > ?"
_OLDEST = "SELECT at, n FROM start WHERE gate = ? AND at > ? ORDER BY at LIMIT ?"


class SqliteStarts:
    """See `StartTable`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._db = session.db

    def add(self, counts: Mapping[str, int]) -> None:
        now = self._session.now
        self._db.executemany(_ADD, [(gate, now, n) for gate, n in counts.items()])

    def put(self, gate: str, moments: Mapping[int, int]) -> None:
        self._db.executemany(_PUT, [(gate, at, n) for at, n in moments.items()])

    def trim(self, gate: str, until_at: int) -> int:
        gone: int = self._db.execute(_TRIM_SUM, (gate, until_at)).get
        if gone:
            self._db.execute(_TRIM, (gate, until_at))
        return gone

    def total(self, gate: str, after_at: int) -> int:
        return self._db.execute(_TOTAL, (gate, after_at)).get

    def oldest(self, gate: str, after_at: int, limit: int) -> list[tuple[int, int]]:
        return self._db.execute(_OLDEST, (gate, after_at, limit)).fetchall()
