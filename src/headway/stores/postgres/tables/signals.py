"""The tables of keys that runs are known as, and of events that were heard."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headway.stores.ledger.rows import SignalRow
from headway.stores.postgres.arrays import Blobs, Ids, MaybeNumbers, Numbers, Texts
from headway.stores.postgres.numbers import KEPT_EVENTS
from headway.stores.postgres.registry import digest
from headway.stores.postgres.session import Session
from headway.stores.postgres.statement import Ask, Each, Row, Tell, of
from headway.stores.postgres.tables.ids import ids_of

_COLUMNS = "scope, event, key, at, kept_until, payload"
KNOWN = Each("SELECT key, job::text, run FROM @known WHERE key = ANY ($1)", of("known"), Texts)
_MAKE_KNOWN = Tell(
    "INSERT INTO @known SELECT * FROM unnest($1::text[], $2::uuid[], $3::bigint[])"
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
HEARD = Each(f"SELECT hash, {_COLUMNS} FROM @event WHERE hash = ANY ($1)", of("event"), Blobs)  # noqa: S608  (names only)
_COUNT = (
    # In the statement that writes: to look first which of the events are kept would be a trip.
    " INSERT INTO @delta SELECT ARRAY[{key}::bigint], ARRAY[{sign}count(*)] FROM changed"
    " WHERE kept_until IS NOT NULL HAVING count(*) > 0"
)
_ADDED = _COUNT.format(key=KEPT_EVENTS, sign="")
_GONE = _COUNT.format(key=KEPT_EVENTS, sign="-")
_SAVE = Tell(
    "WITH changed AS (INSERT INTO @event (hash, scope, event, key, at, kept_until, payload)"  # noqa: S608  (names only)
    " SELECT * FROM unnest($1::bytea[], $2::text[], $3::text[], $4::text[], $5::bigint[],"
    f" $6::bigint[], $7::bytea[]) ON CONFLICT (hash) DO NOTHING RETURNING kept_until){_ADDED}",
    of("event", "counts"),
)
DROP_EVENTS = f"WITH changed AS (DELETE FROM @event WHERE {{}} RETURNING kept_until){_GONE}"  # noqa: S608  (names only)
"""Forgets events by a condition."""
KEPT = Each(
    f"SELECT wanted, {_COLUMNS} FROM unnest($1::text[]) AS wanted CROSS JOIN LATERAL"  # noqa: S608  (names only)
    f" (SELECT {_COLUMNS}, seq FROM @event WHERE key = wanted AND kept_until IS NOT NULL"
    " ORDER BY at, seq) AS kept ORDER BY at, seq",
    of("event"),
    Texts,
)
_KEPT_COUNT = Ask(
    "SELECT coalesce((SELECT n FROM @number WHERE key = $1), 0) + coalesce((SELECT sum(one.n)"
    " FROM @delta CROSS JOIN LATERAL unnest(keys, ns) AS one (key, n) WHERE one.key = $1), 0)",
    of("counts"),
)
_DROP = Tell(DROP_EVENTS.format("hash = ANY ($1)"), of("event", "counts"))
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
        rows = self._session.each(KNOWN, (key,))[key]
        return (rows[0][1], rows[0][2]) if rows else None

    def make_known(self, key: str, job: str, run: int) -> None:
        row = (key, job, run)
        self._session.gather(_MAKE_KNOWN, key, row, _known_columns, patched=(KNOWN,))
        self._session.known_of(KNOWN)[key] = [row]

    def known_as(self, jobs: Sequence[str]) -> list[tuple[str, str, int]]:
        found = self._session.ask(_KNOWN_AS, ids_of(jobs))
        return [(key, job, run) for key, job, run in found]

    def all_known(self, after: str, limit: int) -> list[tuple[str, str, int]]:
        return [(key, job, run) for key, job, run in self._session.ask(_ALL_KNOWN, after, limit)]

    def all_heard(self, after: tuple[str, str], limit: int) -> list[SignalRow]:
        return [_row(row) for row in self._session.ask(_ALL_HEARD, *after, limit)]

    def heard(self, scope: str, event: str) -> SignalRow | None:
        name = hash_of(scope, event)
        rows = self._session.each(HEARD, (name,))[name]
        return _row(rows[0][1:]) if rows else None

    def save(self, row: SignalRow) -> None:
        session, name = self._session, hash_of(row.scope, row.event)
        kept = (row.scope, row.event, row.key, row.at, row.kept_until, row.payload)
        session.gather(_SAVE, name, (name, *kept), _event_columns, patched=(HEARD, KEPT))
        session.known_of(HEARD)[name] = [(name, *kept)]
        if row.kept_until is not None:
            session.known_of(KEPT).pop(row.key, None)
            if session.kept_events is not None:
                session.kept_events += 1

    def kept(self, key: str) -> list[SignalRow]:
        return [_row(row[1:]) for row in self._session.each(KEPT, (key,))[key]]

    def kept_count(self) -> int:
        session = self._session
        if session.kept_events is None:
            session.kept_events = int(session.ask(_KEPT_COUNT, KEPT_EVENTS)[0][0])
        return session.kept_events

    def drop(self, rows: Iterable[SignalRow]) -> None:
        session = self._session
        for row in rows:
            name = hash_of(row.scope, row.event)
            session.gather(_DROP, name, name, _names, patched=(HEARD, KEPT))
            session.known_of(HEARD)[name] = []
            kept = session.known_of(KEPT)
            if row.key in kept:
                kept[row.key] = [one for one in kept[row.key] if one[1:3] != (row.scope, row.event)]
            if row.kept_until is not None and session.kept_events is not None:
                session.kept_events -= 1

    def stale(self, limit: int) -> list[SignalRow]:
        return [_row(row) for row in self._session.ask(_STALE, limit)]


def _known_columns(rows: list[tuple[str, str, int]]) -> tuple[Any, ...]:
    keys, jobs, runs = zip(*rows, strict=True)
    return Texts(keys), Ids(jobs), Numbers(runs)


def _event_columns(rows: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    hashes, scopes, events, keys, moments, until, payloads = zip(*rows, strict=True)
    texts = Texts(scopes), Texts(events), Texts(keys)
    return Blobs(hashes), *texts, Numbers(moments), MaybeNumbers(until), Blobs(payloads)


def _names(rows: list[bytes]) -> tuple[Any, ...]:
    return (Blobs(rows),)


def hash_of(scope: str, event: str) -> bytes:
    """By what an event is found."""
    return digest(scope.encode(), event.encode())


def _row(kept: Row) -> SignalRow:
    scope, event, key, at, kept_until, payload = kept
    return SignalRow(
        scope=scope, event=event, key=key, at=at, kept_until=kept_until, payload=payload
    )
