"""Jobs that are parked at a closed keyed gate, and jobs that were fed from one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from headway.core.flow import Head, Order
from headway.core.state import State
from headway.stores.memory.jobs.base import JobsBase


class JobParking(JobsBase):
    """The part of the job table with jobs at keyed gates."""

    def parked_flows(self, gate: str, after: int, limit: int) -> list[int]:
        return list(self._index.groups("parked flows", gate, after, limit))

    def parked_heads(self, gate: str, flow: int, limit: int) -> list[Head]:
        orders = islice(self._index.bucket("parked", (gate, flow)), limit)
        return [self._head(self._rows[order.seq]) for order in orders]

    def parked_ids(self, gate: str, flows: Sequence[int], limit: int) -> dict[int, list[str]]:
        found = {flow: islice(self._index.bucket("parked", (gate, flow)), limit) for flow in flows}
        ids = {flow: [self._rows[one.seq].id for one in orders] for flow, orders in found.items()}
        return {flow: some for flow, some in ids.items() if some}

    def parked_order(self, gate: str, flow: int) -> Order | None:
        bucket = self._index.bucket("parked", (gate, flow))
        return bucket[0] if bucket else None

    def parked_counts(self, gates: Sequence[str], limit: int) -> dict[str, int]:
        return {one: min(limit, len(self._index.bucket("parked at", one))) for one in gates}

    def unfit_at(self, gate: str, limit: int) -> list[str]:
        return [self._rows[seq].id for seq in islice(self._index.bucket("unfit", gate), limit)]

    def parked_gates(self, after: str, limit: int) -> list[str]:
        names = self._index.gates_parked
        return list(islice(names.irange(minimum=after, inclusive=(False, True)), limit))

    def tickets(self, gate: str, flow: int) -> list[tuple[Order, int]]:
        return [
            (order, self._rows[order.seq].ticket_amount)
            for order in self._index.bucket("ticket", (gate, flow))
        ]

    def feed(self, seqs: Sequence[int], gate: str, amounts: Sequence[int]) -> None:
        for seq, amount in zip(seqs, amounts, strict=True):
            row = self._rows[seq].clone()
            row.state = State.WAITING
            row.ticket, row.ticket_amount = gate, amount
            row.blocked_ms += self._time.now - row.parked_since
            row.parked_at, row.unfit = None, False
            self._put(row)

    def park(self, seqs: Sequence[int], gate: str, *, unfit: bool) -> None:
        for seq in seqs:
            row = self._rows[seq].clone()
            row.state = State.PARKED
            row.ticket, row.ticket_amount = None, 0
            row.parked_at, row.unfit = gate, unfit
            row.parked_since = self._time.now
            self._put(row)
