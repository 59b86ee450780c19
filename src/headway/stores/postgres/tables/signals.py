"""The tables of keys that runs are known as, and of events that were heard."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headway.stores.ledger.rows import SignalRow
from headway.stores.postgres.arrays import Blobs
from headway.stores.postgres.numbers import KEPT_EVENTS
from headway.stores.postgres.registry import digest
from headway.stores.postgres.session import Session
from headway.stores.postgres.statement import Ask, Row, Tell, of
from headway.stores.postgres.tables.ids import ids_of

_COLUMNS = "scope, event, key, at, kept_until, payload"
_KNOWN = Ask("SELECT job::text, run FROM @known WHERE key = $1", of("known"))
_MAKE_KNOWN = Tell(
    "INSERT INTO @known VALUES ($1, $2::text::uuid, $3)"
    " ON CONFLICT (key) DO UPDATE SET job = excluded.job, run = excluded.run",
    of("known"),
)
_KNOWN_AS = Ask("SELECT key, job::text, run FROM @known WHERE job = ANY ($1)", of("known"))
_ALL_KNOWN = Ask(
    "SELECT key, job::text, run FROM @known WHERE key > $1 ORDER BY key LIMIT $2", of("known")
)
_ALL_HEARD = Ask(
    f"SELECT {_COLUMNS} FROM @event"  # noqa: S608  (names only)
    " WHERE (scope, event) > ($1, $2) ORDER BY scope, event LIMIT $3",
    of("event"),
)
_HEARD = Ask(f"SELECT {_COLUMNS} FROM @event WHERE hash = $1", of("event"))  # noqa: S608  (names only)
_IS_KEPT = Ask(
    "SELECT count(*) FROM @event WHERE hash = ANY ($1) AND kept_until IS NOT NULL", of("event")
)
_SAVE = Tell(
    "INSERT INTO @event (hash, scope, event, key, at, kept_until, payload)"
    " VALUES ($1, $2, $3, $4, $5, $6::bigint, $7) ON CONFLICT (hash) DO NOTHING",
    of("event"),
)
_KEPT = Ask(
    f"SELECT {_COLUMNS} FROM @event"  # noqa: S608  (names only)
    " WHERE key = $1 AND kept_until IS NOT NULL ORDER BY at, seq",
    of("event"),
)
_KEPT_COUNT = Ask(
    "SELECT coalesce((SELECT n FROM @number WHERE key = $1), 0) + coalesce((SELECT sum(one.n)"
    " FROM @delta CROSS JOIN LATERAL unnest(keys, ns) AS one (key, n) WHERE one.key = $1), 0)",
    of("counts"),
)
_DROP = Tell("DELETE FROM @event WHERE hash = ANY ($1)", of("event"))
_STALE = Ask(
    f"SELECT {_COLUMNS} FROM @event"  # noqa: S608  (names only)
    " WHERE kept_until <= @now AND kept_until IS NOT NULL ORDER BY kept_until, seq LIMIT $1",
    of("event"),
    ahead=True,
)


class PostgresSignals:
    """What is known of the outside world's words."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def known(self, key: str) -> tuple[str, int] | None:
        rows = self._session.ask(_KNOWN, key)
        return (rows[0][0], rows[0][1]) if rows else None

    def make_known(self, key: str, job: str, run: int) -> None:
        self._session.tell(_MAKE_KNOWN, key, job, run)

    def known_as(self, jobs: Sequence[str]) -> list[tuple[str, str, int]]:
        found = self._session.ask(_KNOWN_AS, ids_of(jobs))
        return [(key, job, run) for key, job, run in found]

    def all_known(self, after: str, limit: int) -> list[tuple[str, str, int]]:
        return [(key, job, run) for key, job, run in self._session.ask(_ALL_KNOWN, after, limit)]

    def all_heard(self, after: tuple[str, str], limit: int) -> list[SignalRow]:
        return [_row(row) for row in self._session.ask(_ALL_HEARD, *after, limit)]

    def heard(self, scope: str, event: str) -> SignalRow | None:
        rows = self._session.ask(_HEARD, _hash(scope, event))
        return _row(rows[0]) if rows else None

    def save(self, row: SignalRow) -> None:
        name = _hash(row.scope, row.event)
        before: int = self._session.ask(_IS_KEPT, Blobs((name,)))[0][0]
        self._session.count(KEPT_EVENTS, (row.kept_until is not None) - before)
        self._session.tell(
            _SAVE, name, row.scope, row.event, row.key, row.at, row.kept_until, row.payload
        )

    def kept(self, key: str) -> list[SignalRow]:
        return [_row(row) for row in self._session.ask(_KEPT, key)]

    def kept_count(self) -> int:
        return int(self._session.ask(_KEPT_COUNT, KEPT_EVENTS)[0][0])

    def drop(self, rows: Iterable[SignalRow]) -> None:
        names = Blobs(_hash(row.scope, row.event) for row in rows)
        if names:
            kept: int = self._session.ask(_IS_KEPT, names)[0][0]
            self._session.count(KEPT_EVENTS, -kept)
            self._session.tell(_DROP, names)

    def stale(self, limit: int) -> list[SignalRow]:
        return [_row(row) for row in self._session.ask(_STALE, limit)]


def _hash(scope: str, event: str) -> bytes:
    return digest(scope.encode(), event.encode())


def _row(kept: Row) -> SignalRow:
    scope, event, key, at, kept_until, payload = kept
    return SignalRow(
        scope=scope, event=event, key=key, at=at, kept_until=kept_until, payload=payload
    )
