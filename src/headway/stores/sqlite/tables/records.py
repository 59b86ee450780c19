"""The tables of enqueue keys, signals, workers and the trail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headway.core.job import ANSWERS_KEPT_MS
from headway.stores.ledger.columns import WORKER, read_worker, worker_values
from headway.stores.ledger.rows import KeyRow, SignalRow, TrailRow, WorkerRow
from headway.stores.sql.records import SqlTrail
from headway.stores.sql.statement import KEPT_EVENTS, Select, of, upsert
from headway.stores.sqlite.database import text_list
from headway.stores.sqlite.session import Session, resolve
from headway.stores.sqlite.tables import SqliteTable

_KEYS = "SELECT tenant, key, job, body, until_at FROM dedupe WHERE tenant = ? AND key IN carray(?)"
_SAVE_KEY = (
    "INSERT INTO dedupe VALUES (?, ?, ?, ?, ?) ON CONFLICT (tenant, key) DO UPDATE"
    " SET job = excluded.job, body = excluded.body, until_at = excluded.until_at"
)


class SqliteKeys(SqliteTable):
    """See `KeyTable`."""

    def load(self, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], KeyRow]:
        by_tenant: dict[str, list[str]] = {}
        for tenant, key in keys:
            by_tenant.setdefault(tenant, []).append(key)
        found: dict[tuple[str, str], KeyRow] = {}
        for tenant, wanted in by_tenant.items():
            for row in self._db.execute(_KEYS, (tenant, text_list(wanted))):
                found[tenant, row[1]] = KeyRow._make(row)
        return found

    def save(self, rows: Iterable[KeyRow]) -> None:
        self._db.executemany(_SAVE_KEY, rows)


_KNOWN = "SELECT job, run FROM known WHERE key = ?"
_KNOWN_AS = "SELECT key, job, run FROM known INDEXED BY known_job WHERE job IN carray(?)"
_ALL_KNOWN = "SELECT key, job, run FROM known WHERE key > ? ORDER BY key LIMIT ?"
_ALL_EVENTS = (
    "SELECT scope, event, key, at, kept_until, payload FROM event"
    " WHERE (scope, event) > (?, ?) ORDER BY scope, event LIMIT ?"
)
_MAKE_KNOWN = resolve(upsert("known", "key, job, run"))
_EVENT = (
    "SELECT scope, event, key, at, kept_until, payload FROM event WHERE scope = ? AND event = ?"
)
_EVENT_IS_KEPT = "SELECT kept_until IS NOT NULL FROM event WHERE scope = ? AND event = ?"
_SAVE_EVENT = (
    "INSERT INTO event (scope, event, key, at, kept_until, payload)"
    " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (scope, event) DO NOTHING"
)
_KEPT_EVENTS = (
    "SELECT scope, event, key, at, kept_until, payload FROM event INDEXED BY event_kept"
    " WHERE key = ? AND kept_until IS NOT NULL ORDER BY at, rowid"
)
_DROP_EVENT = "DELETE FROM event WHERE scope = ? AND event = ?"
_STALE_EVENTS = (
    "SELECT scope, event, key, at, kept_until, payload FROM event INDEXED BY event_stale"
    " WHERE kept_until <= ? AND kept_until IS NOT NULL ORDER BY kept_until, rowid LIMIT ?"
)


class SqliteSignals(SqliteTable):
    """See `SignalTable`."""

    def known(self, key: str) -> tuple[str, int] | None:
        return self._db.execute(_KNOWN, (key,)).fetchone()

    def make_known(self, key: str, job: str, run: int) -> None:
        self._db.execute(_MAKE_KNOWN, (key, job, run))

    def known_as(self, jobs: Sequence[str]) -> list[tuple[str, str, int]]:
        return self._db.execute(_KNOWN_AS, (text_list(jobs),)).fetchall()

    def all_known(self, after: str, limit: int) -> list[tuple[str, str, int]]:
        return self._db.execute(_ALL_KNOWN, (after, limit)).fetchall()

    def all_received(self, after: tuple[str, str], limit: int) -> list[SignalRow]:
        return [SignalRow(*row) for row in self._db.execute(_ALL_EVENTS, (*after, limit))]

    def received(self, scope: str, event: str) -> SignalRow | None:
        row = self._db.execute(_EVENT, (scope, event)).fetchone()
        return SignalRow(*row) if row is not None else None

    def save(self, row: SignalRow) -> None:
        kept = (row.kept_until is not None) - self._is_kept(row)
        if kept:
            self._session.numbers.add(KEPT_EVENTS, kept)
        self._db.execute(
            _SAVE_EVENT, (row.scope, row.event, row.key, row.at, row.kept_until, row.payload)
        )

    def _is_kept(self, row: SignalRow) -> bool:
        return bool(self._db.execute(_EVENT_IS_KEPT, (row.scope, row.event)).get)

    def kept(self, key: str) -> list[SignalRow]:
        return [SignalRow(*row) for row in self._db.execute(_KEPT_EVENTS, (key,))]

    def kept_count(self) -> int:
        return self._session.numbers[KEPT_EVENTS]

    def drop(self, rows: Iterable[SignalRow]) -> None:
        for row in rows:
            if self._is_kept(row):
                self._session.numbers.add(KEPT_EVENTS, -1)
            self._db.execute(_DROP_EVENT, (row.scope, row.event))

    def stale(self, limit: int) -> list[SignalRow]:
        return [
            SignalRow(*row) for row in self._db.execute(_STALE_EVENTS, (self._session.now, limit))
        ]


_WORKER = f"SELECT {WORKER} FROM worker WHERE id = ?"  # noqa: S608  (names of columns only)
_SAVE_WORKER = resolve(upsert("worker", WORKER))
_REMOVE_WORKERS = "DELETE FROM worker WHERE id IN carray(?)"
_LAPSED = (
    f"SELECT {WORKER} FROM worker INDEXED BY worker_lease"  # noqa: S608  (names of columns only)
    " WHERE lapsed = 0 AND lease_until <= ? ORDER BY lease_until, id LIMIT ?"
)
_WORKERS = f"SELECT {WORKER} FROM worker ORDER BY id"  # noqa: S608  (names of columns only)


class SqliteWorkers(SqliteTable):
    """See `WorkerTable`."""

    def load(self, worker: str) -> WorkerRow | None:
        row = self._db.execute(_WORKER, (worker,)).fetchone()
        return read_worker(row) if row is not None else None

    def save(self, row: WorkerRow) -> None:
        self._db.execute(_SAVE_WORKER, worker_values(row))

    def remove(self, workers: Sequence[str]) -> None:
        if workers:
            self._db.execute(_REMOVE_WORKERS, (text_list(workers),))

    def lapsed(self, limit: int) -> list[WorkerRow]:
        return [read_worker(row) for row in self._db.execute(_LAPSED, (self._session.now, limit))]

    def all(self) -> list[WorkerRow]:
        return [read_worker(row) for row in self._db.execute(_WORKERS)]


_ADD_LINE = "INSERT INTO trail (at, author, reason, verb, target, detail) VALUES (?, ?, ?, ?, ?, ?)"
_REMOVE_LINES = "DELETE FROM trail WHERE seq BETWEEN ? AND ?"
_ANSWER = "SELECT answer FROM answer WHERE request = ?"
_KEEP_ANSWER = "INSERT INTO answer VALUES (?, ?, ?) ON CONFLICT (request) DO NOTHING"
_FORGET_ANSWERS = (
    "DELETE FROM answer WHERE request IN"
    " (SELECT request FROM answer INDEXED BY answer_at WHERE at < ? ORDER BY at LIMIT 100)"
)
_TRAIL_OF_TARGET = Select(
    "SELECT seq, at, author, reason, verb, target, detail FROM @trail INDEXED BY trail_target"
    " WHERE target = $1 AND seq < $2 ORDER BY seq DESC LIMIT $3",
    of("trail"),
)


class SqliteTrail(SqliteTable, SqlTrail[Session]):
    """See `TrailTable`."""

    page_of_target = _TRAIL_OF_TARGET

    def of_targets(self, targets: Sequence[str], limit: int) -> Mapping[str, list[TrailRow]]:
        return {target: self.page(target, None, limit) for target in targets}

    def add(self, rows: Sequence[TrailRow]) -> None:
        self._db.executemany(_ADD_LINE, [row[1:] for row in rows])

    def remove(self, rows: Sequence[TrailRow]) -> None:
        self._db.execute(_REMOVE_LINES, (rows[0].seq, rows[-1].seq))

    def answer(self, request: str) -> bytes | None:
        return self._db.execute(_ANSWER, (request,)).get

    def keep_answer(self, request: str, answer: bytes) -> None:
        now = self._session.now
        self._db.execute(_FORGET_ANSWERS, (now - ANSWERS_KEPT_MS,))
        self._db.execute(_KEEP_ANSWER, (request, now, answer))
