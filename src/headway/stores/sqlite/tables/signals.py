"""The tables of signal keys and of received events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headway.stores.ledger.rows import SignalRow
from headway.stores.sqlite.database import text_list
from headway.stores.sqlite.numbers import KEPT_EVENTS
from headway.stores.sqlite.session import Session

_KNOWN = "SELECT job, run FROM known WHERE key = ?"
_KNOWN_AS = "SELECT key, job, run FROM known INDEXED BY known_job WHERE job IN carray(?)"
_ALL_KNOWN = "SELECT key, job, run FROM known WHERE key > ? ORDER BY key LIMIT ?"
_ALL_HEARD = (
    "SELECT scope, event, key, at, kept_until, payload FROM event"
    " WHERE (scope, event) > (?, ?) ORDER BY scope, event LIMIT ?"
)
_MAKE_KNOWN = (
    "INSERT INTO known VALUES (?, ?, ?)"
    " ON CONFLICT (key) DO UPDATE SET job = excluded.job, run = excluded.run"
)
_HEARD = (
    "SELECT scope, event, key, at, kept_until, payload FROM event WHERE scope = ? AND event = ?"
)
_IS_KEPT = "SELECT kept_until IS NOT NULL FROM event WHERE scope = ? AND event = ?"
_SAVE = (
    "INSERT INTO event (scope, event, key, at, kept_until, payload)"
    " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (scope, event) DO NOTHING"
)
_KEPT = (
    "SELECT scope, event, key, at, kept_until, payload FROM event INDEXED BY event_kept"
    " WHERE key = ? AND kept_until IS NOT NULL ORDER BY at, rowid"
)
_DROP = "DELETE FROM event WHERE scope = ? AND event = ?"
_STALE = (
    "SELECT scope, event, key, at, kept_until, payload FROM event INDEXED BY event_stale"
    " WHERE kept_until <= ? AND kept_until IS NOT NULL ORDER BY kept_until, rowid LIMIT ?"
)

_Kept = tuple[str, str, str, int, int | None, bytes]


class SqliteSignals:
    """See `SignalTable`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._db = session.db

    def known(self, key: str) -> tuple[str, int] | None:
        return self._db.execute(_KNOWN, (key,)).fetchone()

    def make_known(self, key: str, job: str, run: int) -> None:
        self._db.execute(_MAKE_KNOWN, (key, job, run))

    def known_as(self, jobs: Sequence[str]) -> list[tuple[str, str, int]]:
        return self._db.execute(_KNOWN_AS, (text_list(jobs),)).fetchall()

    def all_known(self, after: str, limit: int) -> list[tuple[str, str, int]]:
        return self._db.execute(_ALL_KNOWN, (after, limit)).fetchall()

    def all_heard(self, after: tuple[str, str], limit: int) -> list[SignalRow]:
        return [_row(row) for row in self._db.execute(_ALL_HEARD, (*after, limit))]

    def heard(self, scope: str, event: str) -> SignalRow | None:
        row = self._db.execute(_HEARD, (scope, event)).fetchone()
        return _row(row) if row is not None else None

    def save(self, row: SignalRow) -> None:
        kept = (row.kept_until is not None) - self._is_kept(row)
        if kept:
            self._session.numbers.add(KEPT_EVENTS, kept)
        self._db.execute(
            _SAVE, (row.scope, row.event, row.key, row.at, row.kept_until, row.payload)
        )

    def _is_kept(self, row: SignalRow) -> bool:
        return bool(self._db.execute(_IS_KEPT, (row.scope, row.event)).get)

    def kept(self, key: str) -> list[SignalRow]:
        return [_row(row) for row in self._db.execute(_KEPT, (key,))]

    def kept_count(self) -> int:
        return self._session.numbers.get(KEPT_EVENTS)

    def drop(self, rows: Iterable[SignalRow]) -> None:
        for row in rows:
            if self._is_kept(row):
                self._session.numbers.add(KEPT_EVENTS, -1)
            self._db.execute(_DROP, (row.scope, row.event))

    def stale(self, limit: int) -> list[SignalRow]:
        return [_row(row) for row in self._db.execute(_STALE, (self._session.now, limit))]


def _row(kept: _Kept) -> SignalRow:
    scope, event, key, at, kept_until, payload = kept
    return SignalRow(
        scope=scope, event=event, key=key, at=at, kept_until=kept_until, payload=payload
    )
