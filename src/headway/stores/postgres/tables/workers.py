"""The table of workers and their leases."""

from __future__ import annotations

from collections.abc import Sequence

from headway.stores.ledger.columns.workers import WORKER, read_worker, worker_values
from headway.stores.ledger.rows import WorkerRow
from headway.stores.postgres.arrays import Texts
from headway.stores.postgres.mode import Mode
from headway.stores.postgres.session import Session
from headway.stores.postgres.statement import Ask, Tell, of

LOAD = Ask(
    f"SELECT {WORKER}, no FROM @worker WHERE id = $1 ORDER BY no DESC LIMIT 1",  # noqa: S608  (names only)
    of("worker"),
    ahead=True,
)
# A row is never changed, but replaced by one with a higher number, and the highest is looked at
# first. While an old transaction is open, all rows that ever were stay in the index; a
# worker writes its own with every claim, and would walk over all of them each time.
# Only the row that was read is replaced. A beat takes no turn, and so it may have replaced that row
# meanwhile. Then this fails, by a division by zero, and the step is repeated.
_SAVE = Tell(
    "WITH gone AS (DELETE FROM @worker WHERE id = $1 AND no = $8 RETURNING no)"
    " INSERT INTO @worker SELECT $1, $2, $3, $4, $5, $6, $7,"
    " $8 + 1 / (CASE $8 WHEN 0 THEN 1 ELSE (SELECT count(*) FROM gone) END)",
    of("worker"),
    beside=Mode.BEAT,
)
_REMOVE = Tell("DELETE FROM @worker WHERE id = ANY ($1)", of("worker"))
_LAPSED = Ask(
    f"SELECT {WORKER}, no FROM @worker"  # noqa: S608  (names only)
    " WHERE NOT lapsed AND lease_until <= @now ORDER BY lease_until, id LIMIT $1",
    of("worker"),
    ahead=True,
)
_NEXT_LAPSE = Ask(
    "SELECT lease_until FROM @worker WHERE NOT lapsed ORDER BY lease_until LIMIT 1",
    of("worker"),
    ahead=True,
)
_ALL = Ask(
    f"SELECT {WORKER} FROM @worker ORDER BY id",  # noqa: S608  (names only)
    of("worker"),
    ahead=True,
)


class PostgresWorkers:
    """Workers by their random ids."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def load(self, worker: str) -> WorkerRow | None:
        rows = self._session.ask(LOAD, worker)
        self._session.workers[worker] = rows[0][-1] if rows else 0
        return read_worker(rows[0][:-1]) if rows else None

    def save(self, row: WorkerRow) -> None:
        numbers = self._session.workers
        if row.id not in numbers:
            self.load(row.id)
        if not numbers[row.id]:
            # Two steps that each add a worker's first row can leave two rows: the number that one
            # of them waits for becomes free as soon as the other has replaced its own row. The
            # older row would end while the worker lives, and a sweep would take its jobs.
            self._session.need_turn()
        self._session.tell(_SAVE, *worker_values(row), numbers[row.id])
        numbers[row.id] += 1

    def remove(self, workers: Sequence[str]) -> None:
        if workers:
            self._session.tell(_REMOVE, Texts(workers))

    def lapsed(self, limit: int) -> list[WorkerRow]:
        rows = self._session.ask(_LAPSED, limit)
        self._session.workers.update((row[0], row[-1]) for row in rows)
        return [read_worker(row[:-1]) for row in rows]

    def next_lapse(self) -> int | None:
        rows = self._session.ask(_NEXT_LAPSE)
        return rows[0][0] if rows else None

    def all(self) -> list[WorkerRow]:
        return [read_worker(row) for row in self._session.ask(_ALL)]
