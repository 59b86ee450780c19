"""Jobs that are set aside at a closed keyed gate, and those that were fed from one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headway.core.flow import Head, Order
from headway.stores.ledger.columns.jobs import read_heads
from headway.stores.postgres.arrays import Numbers, Texts
from headway.stores.postgres.parkedahead import Ticket
from headway.stores.postgres.session import Session
from headway.stores.postgres.statement import Ask, Each, Read, Row, Rows, Tell, of
from headway.stores.postgres.tables.jobs.base import JobsBase
from headway.stores.postgres.tables.jobs.record import HEAD

MOST_FLOWS = 256
"""Flows of a gate whose parked jobs are read ahead; those of a gate with more are read in turn."""
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
_PARKED_IDS = Ask(
    "SELECT want.flow, one.id FROM unnest($2::bigint[]) AS want (flow) CROSS JOIN LATERAL"  # noqa: S608  (names only)
    f" (SELECT id::text FROM @job AS job WHERE {_AT} AND job.flow = want.flow"
    " ORDER BY priority, due_at, seq LIMIT $3) AS one",
    of("parked"),
)
_FIT_HERE, _UNFIT_HERE = (one.replace("$1", "gate.name") for one in (_AT, _UNFIT))
_COUNT = Ask(
    f"SELECT gate.name, (SELECT count(*) FROM (SELECT FROM @job WHERE {_FIT_HERE} LIMIT $2) AS fit)"  # noqa: S608  (names only)
    f" + (SELECT count(*) FROM (SELECT FROM @job WHERE {_UNFIT_HERE} LIMIT $2) AS unfit)"
    " FROM unnest($1::text[]) AS gate (name)",
    of("parked"),
)
UNFIT = Each(
    "SELECT gate.name, one.id FROM unnest($1::text[]) AS gate (name) CROSS JOIN LATERAL"
    " (SELECT id::text FROM @job WHERE state = 2 AND unfit AND parked_at = gate.name"
    " ORDER BY seq LIMIT 1000) AS one",
    of("parked"),
    Texts,
)
PARKED = (
    # Of no more flows of a gate than one step looks at; their arguments are not looked at.
    "SELECT gate.name, flow.flow, head.* FROM unnest($1::text[], $2::bigint[]) AS gate (name, most)"  # noqa: S608  (names only)
    " CROSS JOIN LATERAL (WITH RECURSIVE parked (flow, n) AS ("
    " (SELECT flow, 1 FROM @job WHERE state = 2 AND NOT unfit AND parked_at = gate.name"
    " ORDER BY flow LIMIT 1)"
    " UNION ALL SELECT next.flow, n + 1 FROM parked CROSS JOIN LATERAL (SELECT job.flow"
    " FROM @job AS job WHERE state = 2 AND NOT unfit AND parked_at = gate.name"
    f" AND job.flow > parked.flow ORDER BY job.flow LIMIT 1) AS next WHERE n <= {MOST_FLOWS})"
    " SELECT flow FROM parked) AS flow"
    f" CROSS JOIN LATERAL (SELECT {HEAD.replace(' args,', chr(39) * 2 + '::bytea AS args,')}"
    " FROM @job AS job WHERE state = 2 AND NOT unfit AND parked_at = gate.name"
    " AND job.flow = flow.flow ORDER BY priority, due_at, seq LIMIT gate.most) AS head"
)
TICKETS_OF = (
    "SELECT ticket, flow, priority, due_at, seq, ticket_amount FROM @job"
    " WHERE ticket IS NOT NULL AND ticket = ANY ($1) AND state = 1"
    " ORDER BY priority, due_at, seq"
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
    "UPDATE @job AS job SET state = 1, ticket = fed.gate, ticket_amount = fed.amount,"
    " parked_at = NULL, unfit = false, blocked_ms = blocked_ms + @now - parked_since"
    " FROM unnest($1::bigint[], $2::text[], $3::bigint[]) AS fed (seq, gate, amount)"
    " WHERE job.seq = fed.seq",
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
        known = self._session.parked.flows(gate, after, limit)
        if known is not None:
            return known
        return [flow for (flow,) in self._session.ask(_PARKED_FLOWS, gate, after, limit)]

    def parked_heads(self, gate: str, flow: int, limit: int) -> list[Head]:
        if gate in self._session.quiet:
            return []
        known = self._session.parked.heads(gate, flow, limit)
        if known is None:
            known = self._session.ask(_PARKED_HEADS, gate, flow, limit)
        return read_heads(known)

    def parked_ids(self, gate: str, flows: Sequence[int], limit: int) -> dict[int, list[str]]:
        self._session.flows.read(flows)
        found: dict[int, list[str]] = {}
        for flow, one in self._session.ask(_PARKED_IDS, gate, Numbers(flows), limit):
            found.setdefault(flow, []).append(one)
        return found

    def parked_order(self, gate: str, flow: int) -> Order | None:
        if gate in self._session.quiet:
            return None
        rows = self._session.ask(_PARKED_ORDER, gate, flow)
        return Order._make(rows[0]) if rows else None

    def parked_counts(self, gates: Sequence[str], limit: int) -> dict[str, int]:
        rows = self._session.ask(_COUNT, Texts(gates), limit) if gates else ()
        return {gate: min(limit, count) for gate, count in rows}

    def unfit_at(self, gate: str, limit: int) -> list[str]:
        return [one for _, one in self._session.each(UNFIT, (gate,))[gate][:limit]]

    def parked_gates(self, after: str, limit: int) -> list[str]:
        return [gate for (gate,) in self._session.ask(_PARKED_GATES, after, limit)]

    def tickets(self, gate: str, flow: int) -> list[tuple[Order, int]]:
        known = self._session.parked.tickets(gate, flow)
        if known is None:
            known = self._session.ask(_TICKETS, gate, flow)
        return [(Order(priority, due_at, seq), amount) for priority, due_at, seq, amount in known]

    def feed(self, seqs: Sequence[int], gate: str, amounts: Sequence[int]) -> None:
        self._moved()
        self._session.behind = True
        self._session.shared.marks.clear()
        for seq, amount in zip(seqs, amounts, strict=True):
            self._session.gather(_FEED, seq, (seq, gate, amount), _fed)
        self._session.parked.feed(seqs, gate, amounts)

    def park(self, seqs: Sequence[int], gate: str, *, unfit: bool) -> None:
        self._leave(seqs)
        self._session.quiet.discard(gate)
        self._session.parked.forget(gate)
        self._session.tell(_PARK, Numbers(seqs), gate, unfit)


def _fed(rows: list[tuple[int, str, int]]) -> tuple[Numbers, Texts, Numbers]:
    seqs, gates, amounts = zip(*rows, strict=True)
    return Numbers(seqs), Texts(gates), Numbers(amounts)


def parked_reads(session: Session, gates: Mapping[str, int]) -> list[Read]:
    """What must be asked to know what waits at gates.

    Args:
        gates: how many heads of each flow are looked at, by name.
    """
    missing = {
        name: most
        for name, most in gates.items()
        if not session.parked.knows(name) and name not in session.quiet
    }
    if not missing:
        return []

    def take(rows: Rows) -> None:
        heads: dict[str, list[tuple[int, Row]]] = {name: [] for name in missing}
        for row in rows:
            heads[row[0]].append((row[1], row[2:]))
        for name, found in heads.items():
            if not found:
                session.quiet.add(name)
            if len({flow for flow, _ in found}) <= MOST_FLOWS:
                session.parked.take(name, missing[name], found)

    def take_tickets(rows: Rows) -> None:
        tickets: dict[str, list[tuple[int, Ticket]]] = {name: [] for name in missing}
        for name, flow, *ticket in rows:
            tickets[name].append((flow, (ticket[0], ticket[1], ticket[2], ticket[3])))
        for name, found in tickets.items():
            session.parked.take_tickets(name, found)

    names = Texts(missing)
    return [
        Read(PARKED, (names, Numbers(missing.values())), take),
        Read(TICKETS_OF, (names,), take_tickets),
    ]
