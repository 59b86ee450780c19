"""Jobs that are set aside at a closed keyed gate, and those that were fed from one."""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.flow import Head, Order
from headway.stores.ledger.columns.jobs import read_heads
from headway.stores.postgres.arrays import Numbers
from headway.stores.postgres.statement import Ask, Tell, of
from headway.stores.postgres.tables.jobs.base import JobsBase
from headway.stores.postgres.tables.jobs.record import HEAD

_AT = "state = 2 AND NOT unfit AND parked_at = $1"
_UNFIT = "state = 2 AND unfit AND parked_at = $1"
_PARKED_FLOWS = Ask(
    "WITH RECURSIVE parked (flow) AS ("  # noqa: S608  (names only)
    f" (SELECT flow FROM @job WHERE {_AT} AND flow > $2 ORDER BY flow LIMIT 1)"
    f" UNION ALL SELECT (SELECT job.flow FROM @job AS job WHERE {_AT}"
    " AND job.flow > parked.flow ORDER BY job.flow LIMIT 1)"
    " FROM parked WHERE parked.flow IS NOT NULL)"
    " SELECT flow FROM parked WHERE flow IS NOT NULL LIMIT $3",
    of("parked"),
)
_PARKED_HEADS = Ask(
    f"SELECT {HEAD} FROM @job WHERE {_AT} AND flow = $2"  # noqa: S608  (names only)
    " ORDER BY priority, due_at, seq LIMIT $3",
    of("parked"),
)
_PARKED_ORDER = Ask(
    f"SELECT priority, due_at, seq FROM @job WHERE {_AT} AND flow = $2"  # noqa: S608  (names only)
    " ORDER BY priority, due_at, seq LIMIT 1",
    of("parked"),
    ahead=True,
)
_COUNT = Ask(
    f"SELECT (SELECT count(*) FROM (SELECT FROM @job WHERE {_AT} LIMIT $2) AS fit)"  # noqa: S608  (names only)
    f" + (SELECT count(*) FROM (SELECT FROM @job WHERE {_UNFIT} LIMIT $2) AS unfit)",
    of("parked"),
)
_UNFIT_AT = Ask(
    f"SELECT id::text FROM @job WHERE {_UNFIT} ORDER BY seq LIMIT $2",  # noqa: S608  (names only)
    of("parked"),
)
_GATES = (
    "(WITH RECURSIVE gates (gate) AS ("
    " (SELECT parked_at FROM @job WHERE state = 2 AND {0} AND parked_at > $1"
    " ORDER BY parked_at LIMIT 1)"
    " UNION ALL SELECT (SELECT parked_at FROM @job WHERE state = 2 AND {0}"
    " AND parked_at > gates.gate ORDER BY parked_at LIMIT 1)"
    " FROM gates WHERE gates.gate IS NOT NULL)"
    " SELECT gate FROM gates WHERE gate IS NOT NULL LIMIT $2)"
)
_PARKED_GATES = Ask(
    f"SELECT gate FROM ({_GATES.format('NOT unfit')} UNION {_GATES.format('unfit')}) AS one"  # noqa: S608  (names only)
    " ORDER BY gate LIMIT $2",
    of("parked"),
)
_TICKETS = Ask(
    "SELECT priority, due_at, seq, ticket_amount FROM @job"
    " WHERE ticket IS NOT NULL AND ticket = $1 AND flow = $2 AND state = 1"
    " ORDER BY priority, due_at, seq",
    of("waiting"),
)
_FEED = Tell(
    "UPDATE @job AS job SET state = 1, ticket = $2, ticket_amount = fed.amount, parked_at = NULL,"
    " unfit = false, blocked_ms = blocked_ms + @now - parked_since"
    " FROM unnest($1::bigint[], $3::bigint[]) AS fed (seq, amount) WHERE job.seq = fed.seq",
    of("waiting", "parked", "job"),
)
_PARK = Tell(
    "UPDATE @job SET state = 2, parked_at = $2, unfit = $3, parked_since = @now, ticket = NULL,"
    " ticket_amount = 0 WHERE seq = ANY ($1)",
    of("waiting", "parked", "job"),
)


class JobParking(JobsBase):
    """The part of the job table that waits at keyed gates."""

    def parked_flows(self, gate: str, after: int, limit: int) -> list[int]:
        if gate in self._session.quiet:
            return []
        return [flow for (flow,) in self._session.ask(_PARKED_FLOWS, gate, after, limit)]

    def parked_heads(self, gate: str, flow: int, limit: int) -> list[Head]:
        if gate in self._session.quiet:
            return []
        return read_heads(self._session.ask(_PARKED_HEADS, gate, flow, limit))

    def parked_order(self, gate: str, flow: int) -> Order | None:
        if gate in self._session.quiet:
            return None
        rows = self._session.ask(_PARKED_ORDER, gate, flow)
        return Order._make(rows[0]) if rows else None

    def parked_count(self, gate: str, limit: int) -> int:
        return min(limit, self._session.ask(_COUNT, gate, limit)[0][0])

    def unfit_at(self, gate: str, limit: int) -> list[str]:
        return [one for (one,) in self._session.ask(_UNFIT_AT, gate, limit)]

    def parked_gates(self, after: str, limit: int) -> list[str]:
        return [gate for (gate,) in self._session.ask(_PARKED_GATES, after, limit)]

    def tickets(self, gate: str, flow: int) -> list[tuple[Order, int]]:
        return [
            (Order(priority, due_at, seq), amount)
            for priority, due_at, seq, amount in self._session.ask(_TICKETS, gate, flow)
        ]

    def feed(self, seqs: Sequence[int], gate: str, amounts: Sequence[int]) -> None:
        self._moved()
        self._session.behind = True
        self._session.shared.marks.clear()
        self._session.tell(_FEED, Numbers(seqs), gate, Numbers(amounts))

    def park(self, seqs: Sequence[int], gate: str, *, unfit: bool) -> None:
        self._leave(seqs)
        self._session.quiet.discard(gate)
        self._session.tell(_PARK, Numbers(seqs), gate, unfit)
