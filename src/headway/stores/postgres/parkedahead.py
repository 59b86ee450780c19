"""What a step read ahead of jobs that are parked at gates, and of the tickets out."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence

from headway.stores.postgres.statement import Row, Rows

Ticket = tuple[int, int, int, int]
"""Priority, due time, seq and amount."""


class ParkedAhead:
    """For each gate that was read: its flows, their first parked jobs, and the tickets out.

    It is kept true through whatever the step writes, or forgotten.
    """

    def __init__(self) -> None:
        self._heads: dict[str, dict[int, tuple[Rows, bool]]] = {}
        self._tickets: dict[str, dict[int, list[Ticket]]] = {}
        self._gate_of: dict[int, str] = {}

    def knows(self, gate: str) -> bool:
        """Return whether the gate was read and nothing has changed there that is not known."""
        return gate in self._heads and gate in self._tickets

    def take(self, gate: str, most: int, heads: Iterable[tuple[int, Row]]) -> None:
        """Learn the heads of all flows that wait at a gate.

        Args:
            most: how many heads of a flow were asked for.
            heads: each with its flow, in order.
        """
        flows: dict[int, Rows] = {}
        for flow, row in heads:
            flows.setdefault(flow, []).append(row)
            self._gate_of[row[2]] = gate
        self._heads[gate] = {flow: (rows, len(rows) < most) for flow, rows in flows.items()}

    def take_tickets(self, gate: str, tickets: Iterable[tuple[int, Ticket]]) -> None:
        """Learn who carries a gate's ticket, each with its flow, in order."""
        flows: dict[int, list[Ticket]] = {}
        for flow, ticket in tickets:
            flows.setdefault(flow, []).append(ticket)
            self._gate_of[ticket[2]] = gate
        self._tickets[gate] = flows

    def flows(self, gate: str, after: int, limit: int) -> list[int] | None:
        """As `JobTable.parked_flows`; None if it is not known."""
        known = self._heads.get(gate)
        if known is None:
            return None
        return sorted(flow for flow in known if flow > after)[:limit]

    def heads(self, gate: str, flow: int, limit: int) -> Rows | None:
        """As `JobTable.parked_heads`; None if it is not known."""
        known = self._heads.get(gate)
        if known is None:
            return None
        rows, whole = known.get(flow, ([], True))
        return rows[:limit] if whole or len(rows) >= limit else None

    def tickets(self, gate: str, flow: int) -> Sequence[Ticket] | None:
        """As `JobTable.tickets`; None if it is not known."""
        known = self._tickets.get(gate)
        return None if known is None else known.get(flow, ())

    def feed(self, seqs: Sequence[int], gate: str, amounts: Sequence[int]) -> None:
        """Jobs that were parked at a gate carry its ticket now."""
        amount_of = dict(zip(seqs, amounts, strict=True))
        fed = {
            row[2]: (flow, (row[0], row[1], row[2], amount_of[row[2]]))
            for flow, (rows, _) in self._heads.get(gate, {}).items()
            for row in rows
            if row[2] in amount_of
        }
        tickets = self._tickets.get(gate)
        if len(fed) < len(amount_of) or tickets is None:
            self.forget(gate)
            return
        self.leave(seqs)
        for flow, ticket in fed.values():
            insort(tickets.setdefault(flow, []), ticket)
            self._gate_of[ticket[2]] = gate

    def leave(self, seqs: Iterable[int]) -> None:
        """Jobs are parked no more, and carry no ticket."""
        if not self._gate_of:
            return
        for seq in seqs:
            gate = self._gate_of.pop(seq, None)
            if gate is None:
                continue
            heads, tickets = self._heads.get(gate, {}), self._tickets.get(gate, {})
            for flow, (rows, whole) in list(heads.items()):
                left = [row for row in rows if row[2] != seq]
                if len(left) == len(rows):
                    continue
                if left or not whole:
                    heads[flow] = (left, whole)
                else:
                    del heads[flow]
                if not left and not whole:
                    # Whether a job is still parked there is not known.
                    del self._heads[gate]
            for flow, known in tickets.items():
                tickets[flow] = [one for one in known if one[2] != seq]

    def forget(self, gate: str) -> None:
        """What waits at a gate is not known any more."""
        self._heads.pop(gate, None)
        self._tickets.pop(gate, None)
