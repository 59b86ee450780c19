"""The tables of the trail and of stored replies."""

from __future__ import annotations

from collections.abc import Sequence

from headway.stores.ledger.rows import TrailRow
from headway.stores.sqlite.session import Session

_ADD = "INSERT INTO trail (at, author, reason, verb, target, detail) VALUES (?, ?, ?, ?, ?, ?)"
_PAGE = (
    "SELECT seq, at, author, reason, verb, target, detail FROM trail"
    " WHERE seq < ? ORDER BY seq DESC LIMIT ?"
)
_PAGE_OF = (
    "SELECT seq, at, author, reason, verb, target, detail FROM trail INDEXED BY trail_target"
    " WHERE target = ? AND seq < ? ORDER BY seq DESC LIMIT ?"
)
_SINCE = (
    "SELECT seq, at, author, reason, verb, target, detail FROM trail"
    " WHERE seq > ? ORDER BY seq LIMIT ?"
)
_REMOVE = "DELETE FROM trail WHERE seq BETWEEN ? AND ?"
_ANSWER = "SELECT answer FROM answer WHERE request = ?"
_KEEP = "INSERT INTO answer VALUES (?, ?, ?) ON CONFLICT (request) DO NOTHING"
_FORGET = (
    "DELETE FROM answer WHERE request IN"
    " (SELECT request FROM answer INDEXED BY answer_at WHERE at < ? ORDER BY at LIMIT 100)"
)
_KEPT_MS = 7_200_000
_END = 2**62


class SqliteTrail:
    """See `TrailTable`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._db = session.db

    def add(self, rows: Sequence[TrailRow]) -> None:
        self._db.executemany(_ADD, [row[1:] for row in rows])

    def remove(self, rows: Sequence[TrailRow]) -> None:
        self._db.execute(_REMOVE, (rows[0].seq, rows[-1].seq))

    def page(self, target: str | None, before: int | None, limit: int) -> list[TrailRow]:
        end = _END if before is None else before
        if target is None:
            found = self._db.execute(_PAGE, (end, limit))
        else:
            found = self._db.execute(_PAGE_OF, (target, end, limit))
        return [TrailRow._make(row) for row in found]

    def since(self, after: int, limit: int) -> list[TrailRow]:
        return [TrailRow._make(row) for row in self._db.execute(_SINCE, (after, limit))]

    def answer(self, request: str) -> bytes | None:
        return self._db.execute(_ANSWER, (request,)).get

    def keep_answer(self, request: str, answer: bytes) -> None:
        now = self._session.now
        self._db.execute(_FORGET, (now - _KEPT_MS,))
        self._db.execute(_KEEP, (request, now, answer))
