"""The table of permits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headway.stores.ledger.gaterows import Holders, PermitRow
from headway.stores.sqlite.database import text_list
from headway.stores.sqlite.session import Session

_ADD = "INSERT INTO permit (gate, job, run, pool, amount, since, hold) VALUES (?, ?, ?, ?, ?, ?, ?)"
_OF_JOBS = (
    "SELECT gate, job, run, pool, amount, since, hold FROM permit WHERE job IN carray(?)"
    " ORDER BY job, gate"
)
_REMOVE = "DELETE FROM permit WHERE job IN carray(?) AND gate = ?"
_AT = (
    "SELECT gate, job, run, pool, amount, since, hold FROM permit INDEXED BY permit_gate"
    " WHERE gate = ? ORDER BY since, job LIMIT ?"
)
_COUNT = (
    "SELECT count(*), coalesce(sum(amount), 0) FROM permit INDEXED BY permit_gate WHERE gate = ?"
)
_SUMS = (
    "SELECT gate, sum(amount) FROM permit INDEXED BY permit_gate"
    " WHERE gate > ? GROUP BY gate ORDER BY gate LIMIT ?"
)
_PAGE = (
    "SELECT gate, job, run, pool, amount, since, hold FROM permit INDEXED BY permit_gate"
    " WHERE gate >= ?1 AND (gate > ?1 OR job > ?2) ORDER BY gate, job LIMIT ?3"
)


class SqlitePermits:
    """See `PermitTable`."""

    def __init__(self, session: Session) -> None:
        self._db = session.db

    def add(self, rows: Sequence[PermitRow]) -> None:
        self._db.executemany(_ADD, rows)

    def of_jobs(self, jobs: Iterable[str]) -> list[PermitRow]:
        wanted = tuple(jobs)
        if not wanted:
            return []
        return list(map(PermitRow._make, self._db.execute(_OF_JOBS, (text_list(wanted),))))

    def remove(self, rows: Sequence[PermitRow]) -> None:
        jobs: dict[str, list[str]] = {}
        for row in rows:
            jobs.setdefault(row.gate, []).append(row.job)
        for gate, held in jobs.items():
            self._db.execute(_REMOVE, (text_list(held), gate))

    def at(self, gates: Sequence[str], limit: int) -> dict[str, Holders]:
        found: dict[str, Holders] = {}
        for gate in gates:
            count, amount = self._db.execute(_COUNT, (gate,)).get
            first = map(PermitRow._make, self._db.execute(_AT, (gate, limit))) if count else ()
            found[gate] = Holders(count, amount, list(first))
        return found

    def sums(self, after: str, limit: int) -> list[tuple[str, int]]:
        return self._db.execute(_SUMS, (after, limit)).fetchall()

    def page(self, after: tuple[str, str], limit: int) -> list[PermitRow]:
        return list(map(PermitRow._make, self._db.execute(_PAGE, (*after, limit))))
