"""The table of permits: rows that name their holders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headway.stores.ledger.gaterows import Holders, PermitRow
from headway.stores.postgres.arrays import Ids, Numbers, Texts
from headway.stores.postgres.session import Session
from headway.stores.postgres.statement import Ask, Each, Rows, Tell, of
from headway.stores.postgres.tables.ids import ids_of

_COLUMNS = "gate, job::text, run, pool, amount, since, hold"
_ADD = Tell(
    "INSERT INTO @permit (gate, job, run, pool, amount, since, hold) SELECT * FROM unnest("
    "$1::text[], $2::uuid[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::text[])",
    of("permit"),
)
_OF = f"SELECT {_COLUMNS} FROM @permit AS p WHERE job {{}} ORDER BY p.job, gate"  # noqa: S608  (names only)
OF_JOBS = Each(_OF.format("= ANY ($1)"), of("permit"), ids_of, 1)
OF_KNOWN = _OF.format("= ANY (ARRAY(SELECT k.job FROM @known AS k WHERE key = ANY ($1)))")
"""The permits of the jobs that are known under keys."""
_REMOVE = Tell(
    # By a range that only the primary key serves. To a server that last saw the table empty the
    # index of gates looks equally good, and it walks over all holders of a gate.
    "DELETE FROM @permit WHERE ctid = ANY (ARRAY(SELECT one.ctid"
    " FROM unnest($1::uuid[], $2::text[]) AS gone (job, gate) CROSS JOIN LATERAL"
    " (SELECT p.ctid, p.job, p.gate FROM @permit AS p"
    " WHERE (p.job, p.gate) >= (gone.job, gone.gate)"
    " ORDER BY p.job, p.gate LIMIT 1) AS one WHERE one.job = gone.job AND one.gate = gone.gate))",
    of("permit"),
)
_FIRST = Ask(
    "SELECT one.* FROM unnest($1::text[]) AS want (name) CROSS JOIN LATERAL"  # noqa: S608  (names only)
    f" (SELECT {_COLUMNS} FROM @permit AS p WHERE gate = want.name"
    " ORDER BY since, p.job LIMIT $2) AS one ORDER BY one.since, one.job",
    of("permit"),
)
_COUNT = Ask(
    "SELECT want.name, one.* FROM unnest($1::text[]) AS want (name) CROSS JOIN LATERAL"
    " (SELECT count(*), coalesce(sum(amount), 0)::bigint FROM @permit WHERE gate = want.name)"
    " AS one",
    of("permit"),
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
        wanted = sorted(ids_of(jobs))
        if not wanted:
            return []
        found = self._session.each(OF_JOBS, wanted)
        return [PermitRow._make(row) for one in wanted for row in found[one]]

    def remove(self, rows: Sequence[PermitRow]) -> None:
        if not rows:
            return
        session = self._session
        bound = Ids(row.job for row in rows), Texts(row.gate for row in rows)
        session.tell(_REMOVE, *bound, patched=(OF_JOBS,))
        known = session.known_of(OF_JOBS)
        for row in rows:
            if row.job in known:
                known[row.job] = [one for one in known[row.job] if one[0] != row.gate]

    def at(self, gates: Sequence[str], limit: int) -> dict[str, Holders]:
        if not gates:
            return {}
        counts = self._session.ask(_COUNT, Texts(gates))
        held = Texts(gate for gate, count, _ in counts if count)
        first: dict[str, list[PermitRow]] = {}
        for row in _permits(self._session.ask(_FIRST, held, limit)) if held and limit else ():
            first.setdefault(row.gate, []).append(row)
        return {gate: Holders(n, amount, first.get(gate, ())) for gate, n, amount in counts}

    def sums(self, after: str, limit: int) -> list[tuple[str, int]]:
        return [(gate, n) for gate, n in self._session.ask(_SUMS, after, limit)]

    def page(self, after: tuple[str, str], limit: int) -> list[PermitRow]:
        gate, job = after
        return _permits(self._session.ask(_PAGE, gate, job or _NONE, limit))


def _permits(rows: Rows) -> list[PermitRow]:
    return list(map(PermitRow._make, rows))
