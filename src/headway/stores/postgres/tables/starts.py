"""The table of the starts that rates count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headway.stores.postgres.arrays import Numbers, Texts
from headway.stores.postgres.session import Session
from headway.stores.postgres.statement import Ask, Tell, of

_ADD = Tell(
    "INSERT INTO @start AS start SELECT gate, @now, n"
    " FROM unnest($1::text[], $2::bigint[]) AS one (gate, n)"
    " ON CONFLICT (gate, at) DO UPDATE SET n = start.n + excluded.n",
    of("start"),
)
_PUT = Tell(
    "INSERT INTO @start SELECT $1, * FROM unnest($2::bigint[], $3::bigint[])"
    " ON CONFLICT (gate, at) DO UPDATE SET n = excluded.n",
    of("start"),
)
TOTALS = (
    "SELECT gate, coalesce(sum(n) FILTER (WHERE at <= $2), 0)::bigint,"
    " coalesce(sum(n) FILTER (WHERE at > $2), 0)::bigint"
    " FROM @start WHERE gate = ANY ($1) GROUP BY gate"
)
_TRIM = Tell(
    # Along the index for each gate, whatever the table's statistics say.
    "DELETE FROM @start WHERE ctid = ANY (ARRAY(SELECT one.ctid"
    " FROM unnest($1::text[], $2::bigint[]) AS old (gate, until_at) CROSS JOIN LATERAL"
    " (SELECT s.ctid FROM @start AS s WHERE s.gate = old.gate AND s.at <= old.until_at"
    " ORDER BY s.gate, s.at) AS one))",
    of("start"),
)
_OLDEST = Ask(
    "SELECT at, n FROM @start WHERE gate = $1 AND at > $2 ORDER BY at LIMIT $3", of("start")
)


class PostgresStarts:
    """One number for each gate and millisecond."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, counts: Mapping[str, int]) -> None:
        session = self._session
        session.tell(_ADD, Texts(counts), Numbers(counts.values()))
        _forget(session, counts)

    def put(self, gate: str, moments: Mapping[int, int]) -> None:
        session = self._session
        session.tell(_PUT, gate, Numbers(moments), Numbers(moments.values()))
        _forget(session, (gate,))

    def trim(self, gate: str, until_at: int) -> int:
        session = self._session
        gone, left = self._totals(gate, until_at)
        if gone:
            session.gather(_TRIM, gate, (gate, until_at), _trimmed)
            session.totals[gate] = {until_at: (0, left)}
        return gone

    def total(self, gate: str, after_at: int) -> int:
        return self._totals(gate, after_at)[1]

    def _totals(self, gate: str, at: int) -> tuple[int, int]:
        totals = self._session.totals
        if at not in totals.get(gate, ()):
            self._read(gate, at)
        return totals[gate][at]

    def _read(self, gate: str, at: int) -> None:
        """Read what this step knows of a rate, and of those that are declared as the same."""
        session = self._session
        row = session.gates.get(gate)
        alike = [gate]
        if row is not None:
            alike += [
                name
                for name, one in session.gates.items()
                if one is not None
                and one.used
                and one.template == row.template
                and name != gate
                and at not in session.totals.get(name, ())
            ]
        for name in alike:
            session.totals.setdefault(name, {})[at] = (0, 0)
        for name, gone, left in session.fetch(TOTALS, (Texts(alike), at)):
            session.totals[name][at] = (gone, left)

    def oldest(self, gate: str, after_at: int, limit: int) -> list[tuple[int, int]]:
        return [(at, n) for at, n in self._session.ask(_OLDEST, gate, after_at, limit)]


def _forget(session: Session, gates: Iterable[str]) -> None:
    for gate in gates:
        session.totals.pop(gate, None)


def _trimmed(rows: list[tuple[str, int]]) -> tuple[Texts, Numbers]:
    gates, moments = zip(*rows, strict=True)
    return Texts(gates), Numbers(moments)
