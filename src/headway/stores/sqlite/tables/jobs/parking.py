"""Jobs that are parked at a closed keyed gate, and jobs that were fed from one."""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.flow import Head, Order
from headway.stores.ledger.columns.jobs import read_heads
from headway.stores.sqlite.database import number_list
from headway.stores.sqlite.tables.jobs.base import JobsBase
from headway.stores.sqlite.tables.jobs.record import HEAD

_PARKED_FLOWS = (
    "WITH RECURSIVE parked (flow) AS ("
    " SELECT min(flow) FROM job INDEXED BY job_parked"
    " WHERE state = 2 AND unfit = 0 AND parked_at = ?1 AND flow > ?2"
    " UNION ALL SELECT (SELECT min(job.flow) FROM job INDEXED BY job_parked"
    " WHERE state = 2 AND unfit = 0 AND parked_at = ?1 AND job.flow > parked.flow)"
    " FROM parked WHERE parked.flow IS NOT NULL)"
    " SELECT flow FROM parked WHERE flow IS NOT NULL LIMIT ?3"
)
_PARKED_HEADS = (
    f"SELECT {HEAD} FROM job INDEXED BY job_parked"  # noqa: S608  (names of columns only)
    " WHERE state = 2 AND unfit = 0 AND parked_at = ? AND flow = ?"
    " ORDER BY priority, due_at, seq LIMIT ?"
)
_PARKED_ORDER = (
    "SELECT priority, due_at, seq FROM job INDEXED BY job_parked"
    " WHERE state = 2 AND unfit = 0 AND parked_at = ? AND flow = ?"
    " ORDER BY priority, due_at, seq LIMIT 1"
)
_PARKED_IDS = (
    "SELECT id FROM job INDEXED BY job_parked"
    " WHERE state = 2 AND unfit = 0 AND parked_at = ? AND flow = ?"
    " ORDER BY priority, due_at, seq LIMIT ?"
)
_COUNT_FIT = (
    "SELECT count(*) FROM (SELECT 1 FROM job INDEXED BY job_parked"
    " WHERE state = 2 AND unfit = 0 AND parked_at = ? LIMIT ?)"
)
_COUNT_UNFIT = (
    "SELECT count(*) FROM (SELECT 1 FROM job INDEXED BY job_unfit"
    " WHERE state = 2 AND unfit = 1 AND parked_at = ? LIMIT ?)"
)
_UNFIT_AT = (
    "SELECT id FROM job INDEXED BY job_unfit"
    " WHERE state = 2 AND unfit = 1 AND parked_at = ? ORDER BY seq LIMIT ?"
)
_GATES_FIT = (
    "WITH RECURSIVE gates (gate) AS ("
    " SELECT min(parked_at) FROM job INDEXED BY job_parked"
    " WHERE state = 2 AND unfit = 0 AND parked_at > ?1"
    " UNION ALL SELECT (SELECT min(parked_at) FROM job INDEXED BY job_parked"
    " WHERE state = 2 AND unfit = 0 AND parked_at > gates.gate)"
    " FROM gates WHERE gates.gate IS NOT NULL)"
    " SELECT gate FROM gates WHERE gate IS NOT NULL LIMIT ?2"
)
_GATES_UNFIT = (
    "WITH RECURSIVE gates (gate) AS ("
    " SELECT min(parked_at) FROM job INDEXED BY job_unfit"
    " WHERE state = 2 AND unfit = 1 AND parked_at > ?1"
    " UNION ALL SELECT (SELECT min(parked_at) FROM job INDEXED BY job_unfit"
    " WHERE state = 2 AND unfit = 1 AND parked_at > gates.gate)"
    " FROM gates WHERE gates.gate IS NOT NULL)"
    " SELECT gate FROM gates WHERE gate IS NOT NULL LIMIT ?2"
)
_TICKETS = (
    "SELECT priority, due_at, seq, ticket_amount FROM job INDEXED BY job_ticket"
    " WHERE ticket IS NOT NULL AND ticket = ? AND flow = ? AND state = 1"
    " ORDER BY priority, due_at, seq"
)
_FEED = (
    "UPDATE job SET state = 1, ticket = ?2, ticket_amount = ?3, parked_at = NULL, unfit = 0,"
    " blocked_ms = blocked_ms + ?4 - parked_since WHERE seq = ?1"
)
_PARK = (
    "UPDATE job SET state = 2, parked_at = ?2, unfit = ?3, parked_since = ?4, ticket = NULL,"
    " ticket_amount = 0 WHERE seq IN carray(?1)"
)


class JobParking(JobsBase):
    """The part of the job table with jobs at keyed gates."""

    def parked_flows(self, gate: str, after: int, limit: int) -> list[int]:
        return [flow for (flow,) in self._db.execute(_PARKED_FLOWS, (gate, after, limit))]

    def parked_heads(self, gate: str, flow: int, limit: int) -> list[Head]:
        return read_heads(self._db.execute(_PARKED_HEADS, (gate, flow, limit)))

    def parked_ids(self, gate: str, flows: Sequence[int], limit: int) -> dict[int, list[str]]:
        ids = {flow: self._db.execute(_PARKED_IDS, (gate, flow, limit)) for flow in flows}
        found = {flow: [one for (one,) in rows] for flow, rows in ids.items()}
        return {flow: some for flow, some in found.items() if some}

    def parked_order(self, gate: str, flow: int) -> Order | None:
        row = self._db.execute(_PARKED_ORDER, (gate, flow)).fetchone()
        return Order._make(row) if row is not None else None

    def parked_counts(self, gates: Sequence[str], limit: int) -> dict[str, int]:
        found: dict[str, int] = {}
        for gate in gates:
            fit: int = self._db.execute(_COUNT_FIT, (gate, limit)).get
            unfit: int = self._db.execute(_COUNT_UNFIT, (gate, limit)).get
            found[gate] = min(limit, fit + unfit)
        return found

    def unfit_at(self, gate: str, limit: int) -> list[str]:
        return [one for (one,) in self._db.execute(_UNFIT_AT, (gate, limit))]

    def parked_gates(self, after: str, limit: int) -> list[str]:
        found = self._db.execute(_GATES_FIT, (after, limit)).fetchall()
        found += self._db.execute(_GATES_UNFIT, (after, limit)).fetchall()
        return sorted({gate for (gate,) in found})[:limit]

    def tickets(self, gate: str, flow: int) -> list[tuple[Order, int]]:
        return [
            (Order(priority, due_at, seq), amount)
            for priority, due_at, seq, amount in self._db.execute(_TICKETS, (gate, flow))
        ]

    def feed(self, seqs: Sequence[int], gate: str, amounts: Sequence[int]) -> None:
        now = self._session.now
        fed = [(seq, gate, amount, now) for seq, amount in zip(seqs, amounts, strict=True)]
        self._db.executemany(_FEED, fed)

    def park(self, seqs: Sequence[int], gate: str, *, unfit: bool) -> None:
        self._db.execute(_PARK, (number_list(seqs), gate, unfit, self._session.now))
