"""The table of workers and their leases."""

from __future__ import annotations

from collections.abc import Sequence

from headway.stores.ledger.columns.workers import WORKER, read_worker, worker_values
from headway.stores.ledger.rows import WorkerRow
from headway.stores.sqlite.database import text_list
from headway.stores.sqlite.session import Session

_LOAD = f"SELECT {WORKER} FROM worker WHERE id = ?"  # noqa: S608  (names of columns only)
_SAVE = (
    "INSERT INTO worker VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET"
    " name = excluded.name, lanes = excluded.lanes, seen_at = excluded.seen_at,"
    " lease_until = excluded.lease_until, request = excluded.request, lapsed = excluded.lapsed"
)
_REMOVE = "DELETE FROM worker WHERE id IN carray(?)"
_LAPSED = (
    f"SELECT {WORKER} FROM worker INDEXED BY worker_lease"  # noqa: S608  (names of columns only)
    " WHERE lapsed = 0 AND lease_until <= ? ORDER BY lease_until, id LIMIT ?"
)
_NEXT_LAPSE = "SELECT min(lease_until) FROM worker INDEXED BY worker_lease WHERE lapsed = 0"
_ALL = f"SELECT {WORKER} FROM worker ORDER BY id"  # noqa: S608  (names of columns only)


class SqliteWorkers:
    """See `WorkerTable`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._db = session.db

    def load(self, worker: str) -> WorkerRow | None:
        row = self._db.execute(_LOAD, (worker,)).fetchone()
        return read_worker(row) if row is not None else None

    def save(self, row: WorkerRow) -> None:
        self._db.execute(_SAVE, worker_values(row))

    def remove(self, workers: Sequence[str]) -> None:
        if workers:
            self._db.execute(_REMOVE, (text_list(workers),))

    def lapsed(self, limit: int) -> list[WorkerRow]:
        return [read_worker(row) for row in self._db.execute(_LAPSED, (self._session.now, limit))]

    def next_lapse(self) -> int | None:
        return self._db.execute(_NEXT_LAPSE).get

    def all(self) -> list[WorkerRow]:
        return [read_worker(row) for row in self._db.execute(_ALL)]
