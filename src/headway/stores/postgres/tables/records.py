"""The tables of deduplication keys, signals, workers and the trail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from headway.core.job import ANSWERS_KEPT_MS
from headway.stores.ledger.columns import WORKER, read_worker, worker_values
from headway.stores.ledger.rows import KeyRow, SignalRow, TrailRow, WorkerRow
from headway.stores.postgres.arrays import Blobs, Ids, MaybeNumbers, Numbers, Texts, ids_of
from headway.stores.postgres.numbers import WAIT_BRIEFLY
from headway.stores.postgres.registry import digest
from headway.stores.postgres.session import Session
from headway.stores.postgres.statement import Each, Mode, Read, Repeat
from headway.stores.sql.records import SqlTrail
from headway.stores.sql.statement import KEPT_EVENTS, Rows, Select, SqlTable, Write, of

KEYS = Each(
    "SELECT hash, job::text, body, until_at FROM @dedupe WHERE hash = ANY ($1)", of("key"), Blobs
)
_NEW_KEYS = (
    "INSERT INTO @dedupe AS kept"
    " SELECT * FROM unnest($1::bytea[], $2::uuid[], $3::bytea[], $4::bigint[])"
)
_ADD_KEYS = Write(_NEW_KEYS, of("key"))
_TAKE_KEYS = Write(
    # If a key exists by now, another step has written it.
    f"{_NEW_KEYS} ON CONFLICT (hash) DO UPDATE SET job = excluded.job, body = excluded.body,"
    " until_at = excluded.until_at WHERE kept.until_at <= $5 RETURNING hash",
    of("key"),
)
_SAVE_KEYS = Write(
    f"{_NEW_KEYS} ON CONFLICT (hash) DO UPDATE SET job = excluded.job, body = excluded.body,"
    " until_at = excluded.until_at",
    of("key"),
)


class PostgresKeys(SqlTable[Session]):
    """Deduplication keys by tenant, looked up by a hash of both."""

    def load(self, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], KeyRow]:
        if self._session.mode is Mode.BLIND:
            return {}
        places = {key_hash(*place): place for place in keys}
        if not places:
            return {}
        found: dict[tuple[str, str], KeyRow] = {}
        known = self._session.each(KEYS, tuple(places))
        for name, (tenant, key) in places.items():
            for _, job, body, until_at in known[name]:
                found[tenant, key] = KeyRow(tenant, key, job, body, until_at)
        return found

    def save(self, rows: Iterable[KeyRow]) -> None:
        rows = list(rows)
        if not rows:
            return
        session = self._session
        kept = [(key_hash(row.tenant, row.key), row.job, row.body, row.until_at) for row in rows]
        if session.mode is Mode.EXCLUSIVE:
            if not session.waits_briefly:
                session.waits_briefly = True
                session.write(_BRIEF_WAIT)
            known = session.cache.each(KEYS)
            for row in kept:
                session.gather(_SAVE_KEYS, row[0], row, _key_columns, patched=(KEYS,))
                known[row[0]] = [row]
            return
        bound = _key_columns(kept)
        if session.mode is Mode.BLIND:
            session.write(_ADD_KEYS, *bound)
        elif len(session.do(_TAKE_KEYS, *bound, session.now)) < len(rows):
            raise Repeat


_BRIEF_WAIT = Write(WAIT_BRIEFLY, of())


def _key_columns(rows: list[tuple[bytes, str, bytes, int | None]]) -> tuple[Any, ...]:
    hashes, jobs, bodies, moments = zip(*rows, strict=True)
    return Blobs(hashes), Ids(jobs), Blobs(bodies), MaybeNumbers(moments)


def key_hash(tenant: str, key: str) -> bytes:
    """Return the hash by which a key is looked up."""
    return digest(tenant.encode(), key.encode())


_EVENT = "scope, event, key, at, kept_until, payload"
KNOWN = Each("SELECT key, job::text, run FROM @known WHERE key = ANY ($1)", of("known"), Texts)
OF_KNOWN = "SELECT k.job FROM @known AS k WHERE key = ANY ($1)"
"""The ids of jobs known by keys."""
_MAKE_KNOWN = Write(
    "INSERT INTO @known SELECT * FROM unnest($1::text[], $2::uuid[], $3::bigint[])"
    " ON CONFLICT (key) DO UPDATE SET job = excluded.job, run = excluded.run",
    of("known"),
)
_KNOWN_AS = Select("SELECT key, job::text, run FROM @known WHERE job = ANY ($1)", of("known"))
_ALL_KNOWN = Select(
    "SELECT key, job::text, run FROM @known WHERE key > $1 ORDER BY key LIMIT $2", of("known")
)
_ALL_HEARD = Select(
    f"SELECT {_EVENT} FROM @event"  # noqa: S608  (names only)
    " WHERE (scope, event) > ($1, $2) ORDER BY scope, event LIMIT $3",
    of("event"),
)
EVENTS = Each(f"SELECT hash, {_EVENT} FROM @event WHERE hash = ANY ($1)", of("event"), Blobs)  # noqa: S608  (names only)
_COUNT_KEPT = (
    # In the writing statement, because reading first which events are kept would cost a trip.
    " INSERT INTO @delta SELECT ARRAY[{key}::bigint], ARRAY[{sign}count(*)] FROM changed"
    " WHERE kept_until IS NOT NULL HAVING count(*) > 0"
)
_ADDED = _COUNT_KEPT.format(key=KEPT_EVENTS, sign="")
_GONE = _COUNT_KEPT.format(key=KEPT_EVENTS, sign="-")
_SAVE_EVENTS = Write(
    "WITH changed AS (INSERT INTO @event (hash, scope, event, key, at, kept_until, payload)"  # noqa: S608  (names only)
    " SELECT * FROM unnest($1::bytea[], $2::text[], $3::text[], $4::text[], $5::bigint[],"
    f" $6::bigint[], $7::bytea[]) ON CONFLICT (hash) DO NOTHING RETURNING kept_until){_ADDED}",
    of("event", "counts"),
)
EVENTS_READ = 16
"""How many events of a job are read in the same trip that finds the job."""
EVENTS_OF_KNOWN = (
    # One more, to detect that there are others.
    f"SELECT one.* FROM unnest(ARRAY({OF_KNOWN})::text[]) AS of (scope) CROSS JOIN LATERAL"  # noqa: S608  (names only)
    f" (SELECT hash, {_EVENT} FROM @event AS e WHERE e.scope = of.scope LIMIT {EVENTS_READ + 1})"
    " AS one"
)
DROP_EVENTS = f"WITH changed AS (DELETE FROM @event WHERE {{}} RETURNING kept_until){_GONE}"  # noqa: S608  (names only)
"""Delete events by a condition."""
KEPT_BY_KEY = Each(
    f"SELECT wanted, {_EVENT} FROM unnest($1::text[]) AS wanted CROSS JOIN LATERAL"  # noqa: S608  (names only)
    f" (SELECT {_EVENT}, seq FROM @event WHERE key = wanted AND kept_until IS NOT NULL"
    " ORDER BY at, seq) AS kept ORDER BY at, seq",
    of("event"),
    Texts,
)
_KEPT_COUNT = Select(
    "SELECT coalesce((SELECT n FROM @number WHERE key = $1), 0) + coalesce((SELECT sum(one.n)"
    " FROM @delta CROSS JOIN LATERAL unnest(keys, ns) AS one (key, n) WHERE one.key = $1), 0)",
    of("counts"),
)
_DROP_EVENTS = Write(DROP_EVENTS.format("hash = ANY ($1)"), of("event", "counts"))
_STALE_EVENTS = Select(
    f"SELECT {_EVENT} FROM @event"  # noqa: S608  (names only)
    " WHERE kept_until <= @now AND kept_until IS NOT NULL ORDER BY kept_until, seq LIMIT $1",
    of("event"),
    ahead=True,
)


class PostgresSignals(SqlTable[Session]):
    """See `SignalTable`."""

    def known(self, key: str) -> tuple[str, int] | None:
        rows = self._session.each(KNOWN, (key,))[key]
        return (rows[0][1], rows[0][2]) if rows else None

    def make_known(self, key: str, job: str, run: int) -> None:
        row = (key, job, run)
        self._session.gather(_MAKE_KNOWN, key, row, _known_columns, patched=(KNOWN,))
        self._session.cache.each(KNOWN)[key] = [row]

    def known_as(self, jobs: Sequence[str]) -> list[tuple[str, str, int]]:
        found = self._session.select(_KNOWN_AS, ids_of(jobs))
        return [(key, job, run) for key, job, run in found]

    def all_known(self, after: str, limit: int) -> list[tuple[str, str, int]]:
        return [(key, job, run) for key, job, run in self._session.select(_ALL_KNOWN, after, limit)]

    def all_received(self, after: tuple[str, str], limit: int) -> list[SignalRow]:
        return [SignalRow(*row) for row in self._session.select(_ALL_HEARD, *after, limit)]

    def received(self, scope: str, event: str) -> SignalRow | None:
        name = event_hash(scope, event)
        rows = self._session.each(EVENTS, (name,))[name]
        return SignalRow(*rows[0][1:]) if rows else None

    def save(self, row: SignalRow) -> None:
        session, name = self._session, event_hash(row.scope, row.event)
        kept = (row.scope, row.event, row.key, row.at, row.kept_until, row.payload)
        session.gather(
            _SAVE_EVENTS, name, (name, *kept), _event_columns, patched=(EVENTS, KEPT_BY_KEY)
        )
        session.cache.each(EVENTS)[name] = [(name, *kept)]
        if row.kept_until is not None:
            session.cache.each(KEPT_BY_KEY).pop(row.key, None)
            if session.cache.kept_events is not None:
                session.cache.kept_events += 1

    def kept(self, key: str) -> list[SignalRow]:
        return [SignalRow(*row[1:]) for row in self._session.each(KEPT_BY_KEY, (key,))[key]]

    def kept_count(self) -> int:
        session = self._session
        if session.cache.kept_events is None:
            session.cache.kept_events = int(session.select(_KEPT_COUNT, KEPT_EVENTS)[0][0])
        return session.cache.kept_events

    def drop(self, rows: Iterable[SignalRow]) -> None:
        session = self._session
        for row in rows:
            name = event_hash(row.scope, row.event)
            session.gather(_DROP_EVENTS, name, name, _hash_column, patched=(EVENTS, KEPT_BY_KEY))
            session.cache.each(EVENTS)[name] = []
            kept = session.cache.each(KEPT_BY_KEY)
            if row.key in kept:
                kept[row.key] = [one for one in kept[row.key] if one[1:3] != (row.scope, row.event)]
            if row.kept_until is not None and session.cache.kept_events is not None:
                session.cache.kept_events -= 1

    def stale(self, limit: int) -> list[SignalRow]:
        return [SignalRow(*row) for row in self._session.select(_STALE_EVENTS, limit)]


def _known_columns(rows: list[tuple[str, str, int]]) -> tuple[Any, ...]:
    keys, jobs, runs = zip(*rows, strict=True)
    return Texts(keys), Ids(jobs), Numbers(runs)


def _event_columns(rows: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    hashes, scopes, events, keys, moments, until, payloads = zip(*rows, strict=True)
    texts = Texts(scopes), Texts(events), Texts(keys)
    return Blobs(hashes), *texts, Numbers(moments), MaybeNumbers(until), Blobs(payloads)


def _hash_column(rows: list[bytes]) -> tuple[Any, ...]:
    return (Blobs(rows),)


def events_of_known(
    session: Session, names: Sequence[str], events: Iterable[tuple[str, str]]
) -> Read:
    """Return the query for events of the runs known by keys; take the runs' rows first.

    Args:
        events: signals' events, each with its key.
    """

    def take(rows: Rows) -> None:
        known, found = session.cache.each(KNOWN), session.cache.each(EVENTS)
        counts = Counter(row[1] for row in rows)
        for key, event in events:
            for _, job, _ in known.get(key, ()):
                if counts[job] <= EVENTS_READ:
                    found[event_hash(job, event)] = []
        found.update((row[0], [row]) for row in rows)

    return Read(EVENTS_OF_KNOWN, (Texts(names),), take)


@lru_cache(maxsize=2_048)
def event_hash(scope: str, event: str) -> bytes:
    """Return the hash by which an event is looked up."""
    return digest(scope.encode(), event.encode())


LOAD_WORKER = Select(
    f"SELECT {WORKER}, no FROM @worker WHERE id = $1 ORDER BY no DESC LIMIT 1",  # noqa: S608  (names only)
    of("worker"),
    ahead=True,
)
# A row is never updated, but replaced by one with a higher number, and the highest is read first.
# While an old transaction is open, all old rows stay in the index; a worker writes its row with
# every claim, and would scan all of them each time. Only the row that was read is replaced. A beat
# takes no lock, so it may have replaced that row in the meantime. Then this fails with a division
# by zero, and the step is repeated.
_SAVE_WORKER = Write(
    "WITH gone AS (DELETE FROM @worker WHERE id = $1 AND no = $8 RETURNING no)"
    " INSERT INTO @worker SELECT $1, $2, $3, $4, $5, $6, $7,"
    " $8 + 1 / (CASE $8 WHEN 0 THEN 1 ELSE (SELECT count(*) FROM gone) END)",
    of("worker"),
    beside=Mode.BEAT,
)
_REMOVE_WORKERS = Write("DELETE FROM @worker WHERE id = ANY ($1)", of("worker"))
_LAPSED = Select(
    f"SELECT {WORKER}, no FROM @worker"  # noqa: S608  (names only)
    " WHERE NOT lapsed AND lease_until <= @now ORDER BY lease_until, id LIMIT $1",
    of("worker"),
    ahead=True,
)
_WORKERS = Select(
    f"SELECT {WORKER} FROM @worker ORDER BY id",  # noqa: S608  (names only)
    of("worker"),
    ahead=True,
)


class PostgresWorkers(SqlTable[Session]):
    """Workers by their random ids."""

    def load(self, worker: str) -> WorkerRow | None:
        rows = self._session.select(LOAD_WORKER, worker)
        self._session.cache.workers[worker] = rows[0][-1] if rows else 0
        return read_worker(rows[0][:-1]) if rows else None

    def save(self, row: WorkerRow) -> None:
        numbers = self._session.cache.workers
        if row.id not in numbers:
            self.load(row.id)
        if not numbers[row.id]:
            # Two concurrent steps that add a worker's first row could leave two rows: the number
            # for which one waits becomes free as soon as the other has replaced its own row. The
            # older row's lease would end while the worker lives, and a sweep would take its jobs.
            self._session.need_exclusive()
        self._session.write(_SAVE_WORKER, *worker_values(row), numbers[row.id])
        numbers[row.id] += 1

    def remove(self, workers: Sequence[str]) -> None:
        if workers:
            self._session.write(_REMOVE_WORKERS, Texts(workers))

    def lapsed(self, limit: int) -> list[WorkerRow]:
        rows = self._session.select(_LAPSED, limit)
        self._session.cache.workers.update((row[0], row[-1]) for row in rows)
        return [read_worker(row[:-1]) for row in rows]

    def all(self) -> list[WorkerRow]:
        return [read_worker(row) for row in self._session.select(_WORKERS)]


_ADD_LINES = Write(
    "INSERT INTO @trail (at, author, reason, verb, target, detail) SELECT * FROM unnest("
    "$1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[])",
    of("trail"),
)
_TRAIL_OF_TARGET = Select(
    "SELECT seq, at, author, reason, verb, target, detail FROM @trail"
    " WHERE target = $1 AND seq < $2 ORDER BY seq DESC LIMIT $3",
    of("trail"),
)
_TRAIL_OF_TARGETS = Select(
    "SELECT line.seq, at, author, reason, verb, target, detail FROM unnest($1::text[]) AS wanted"
    " CROSS JOIN LATERAL (SELECT * FROM @trail WHERE target = wanted ORDER BY seq DESC LIMIT $2)"
    " AS line ORDER BY line.seq DESC",
    of("trail"),
)
_REMOVE_LINES = Write(
    "DELETE FROM @trail WHERE ctid = ANY (ARRAY("
    "SELECT ctid FROM @trail WHERE seq BETWEEN $1 AND $2 ORDER BY seq))",
    of("trail"),
)
_ANSWER = Select("SELECT answer FROM @answer WHERE hash = $1", of("answer"))
_KEEP_ANSWER = Write(
    "INSERT INTO @answer VALUES ($1, @now, $2) ON CONFLICT DO NOTHING", of("answer")
)
_FORGET_ANSWERS = Write(
    "DELETE FROM @answer WHERE hash = ANY (ARRAY("
    "SELECT hash FROM @answer WHERE at < $1 ORDER BY at LIMIT 100))",
    of("answer"),
)


class PostgresTrail(SqlTrail[Session]):
    """See `TrailTable`."""

    page_of_target = _TRAIL_OF_TARGET

    def of_targets(self, targets: Sequence[str], limit: int) -> Mapping[str, list[TrailRow]]:
        rows = self._session.select(_TRAIL_OF_TARGETS, Texts(targets), limit) if targets else []
        found: dict[str, list[TrailRow]] = {}
        for row in map(TrailRow._make, rows):
            found.setdefault(row.target, []).append(row)
        return found

    def add(self, rows: Sequence[TrailRow]) -> None:
        if not rows:
            return
        _, moments, authors, reasons, verbs, targets, details = zip(*rows, strict=True)
        texts = (Texts(map(storable, each)) for each in (authors, reasons, verbs, targets, details))
        self._session.write(_ADD_LINES, Numbers(moments), *texts)

    def remove(self, rows: Sequence[TrailRow]) -> None:
        self._session.write(_REMOVE_LINES, rows[0].seq, rows[-1].seq)

    def answer(self, request: str) -> bytes | None:
        rows = self._session.select(_ANSWER, digest(request.encode()))
        return rows[0][0] if rows else None

    def keep_answer(self, request: str, answer: bytes) -> None:
        self._session.write(_FORGET_ANSWERS, self._session.now - ANSWERS_KEPT_MS)
        self._session.write(_KEEP_ANSWER, digest(request.encode()), answer)


def storable(text: str) -> str:
    """Return text that the server can store, without NUL and lone surrogates."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
