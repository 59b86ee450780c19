"""The table of permits: rows that name their holders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headway.stores.ledger.gaterows import PermitRow
from headway.stores.postgres.arrays import Ids, Numbers, Texts
from headway.stores.postgres.session import Session
from headway.stores.postgres.statement import Ask, Rows, Tell, of
from headway.stores.postgres.tables.ids import ids_of

_COLUMNS = "gate, job::text, run, pool, amount, since, hold"
_ADD = Tell(
    "INSERT INTO @permit (gate, job, run, pool, amount, since, hold) SELECT * FROM unnest("
    "$1::text[], $2::uuid[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::text[])",
    of("permit"),
)
OF_JOBS = Ask(
    f"SELECT {_COLUMNS} FROM @permit AS p WHERE job = ANY ($1)"  # noqa: S608  (names only)
    " ORDER BY p.job, gate",
    of("permit"),
)
_REMOVE = Tell(
    "DELETE FROM @permit WHERE job = ANY ($1) AND gate = $2",
    of("permit"),
)
_AT = Ask(
    f"SELECT {_COLUMNS} FROM @permit AS p WHERE gate = $1"  # noqa: S608  (names only)
    " ORDER BY since, p.job LIMIT $2",
    of("permit"),
)
_COUNT = Ask(
    "SELECT count(*), coalesce(sum(amount), 0)::bigint FROM @permit WHERE gate = $1", of("permit")
)
_SUMS = Ask(
    "SELECT gate, sum(amount)::bigint FROM @permit WHERE gate > $1"
    " GROUP BY gate ORDER BY gate LIMIT $2",
    of("permit"),
)
_PAGE = Ask(
    f"SELECT {_COLUMNS} FROM @permit AS p"  # noqa: S608  (names only)
    " WHERE gate >= $1 AND (gate > $1 OR p.job > $2::uuid) ORDER BY gate, p.job LIMIT $3",
    of("permit"),
)
_NONE = "00000000-0000-0000-0000-000000000000"


class PostgresPermits:
    """Permits; a job holds at most one of a gate."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, rows: Sequence[PermitRow]) -> None:
        if not rows:
            return
        gates, jobs, runs, pools, amounts, moments, holds = zip(*rows, strict=True)
        self._session.tell(
            _ADD,
            Texts(gates),
            Ids(jobs),
            Numbers(runs),
            Texts(pools),
            Numbers(amounts),
            Numbers(moments),
            Texts(holds),
        )

    def of_jobs(self, jobs: Iterable[str]) -> list[PermitRow]:
        wanted = ids_of(jobs)
        if not wanted:
            return []
        return _permits(self._session.ask(OF_JOBS, wanted))

    def remove(self, rows: Sequence[PermitRow]) -> None:
        jobs: dict[str, list[str]] = {}
        for row in rows:
            jobs.setdefault(row.gate, []).append(row.job)
        for gate, held in jobs.items():
            self._session.tell(_REMOVE, Ids(held), gate)

    def at(self, gate: str, limit: int) -> list[PermitRow]:
        return _permits(self._session.ask(_AT, gate, limit))

    def count(self, gate: str) -> tuple[int, int]:
        n, amount = self._session.ask(_COUNT, gate)[0]
        return n, amount

    def sums(self, after: str, limit: int) -> list[tuple[str, int]]:
        return [(gate, n) for gate, n in self._session.ask(_SUMS, after, limit)]

    def page(self, after: tuple[str, str], limit: int) -> list[PermitRow]:
        gate, job = after
        return _permits(self._session.ask(_PAGE, gate, job or _NONE, limit))


def _permits(rows: Rows) -> list[PermitRow]:
    return list(map(PermitRow._make, rows))
