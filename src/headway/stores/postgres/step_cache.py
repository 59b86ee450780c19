"""The cache of one step's reads, so that nothing is read twice."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from typing import Any

from headway.stores.ledger.gaterows import GateRow
from headway.stores.postgres.statement import BoundSelect, Each, Read, Thing
from headway.stores.sql.statement import Row, Rows

Ticket = tuple[int, int, int, int]
"""Priority, due time, seq and amount of a fed job."""


FLOWS_TOGETHER = 1_000
"""About how many flows of all lanes of a claim have their gates and tenants read at once."""


class StepCache:
    """What a step knows of the store; each step has a new cache.

    Attributes:
        answers: rows of queries that may be prefetched.
        used: queries that the step needed, which the next step of its kind prefetches.
        gates: rows of gates; None for a gate without a row.
        none_parked: keyed gates without parked jobs.
        many_parked: keyed gates with parked jobs of so many flows that these are read in turn.
        gates_read: names of gates that were read.
        fed: gates whose parked jobs were read.
        queues: flows at gates whose first parked job was read; see `FIRST_PARKED`.
        heads: rows of the first waiting jobs of flows, with the number that was requested.
        wanted: number of requested heads, by flow.
        heads_read: number of queries for heads besides those of the prefetch.
        lanes_asked: flows with waiting jobs, by lane, preceding flow and limit; None until read.
        gone: seqs of jobs that no longer wait.
        new_marks: new low-water marks and number of started jobs, by flow.
        found: flows with waiting jobs in a lane, as last read.
        finished: rows of jobs that were finished with the step's start, by worker, run and job.
        promoted: rows of the due jobs that became waiting with the step's start; None if this was
            not tried.
        kept_events: number of kept events; None until read.
        parked: jobs parked at gates, and the tickets of jobs fed from them.
        workers: numbers of workers' rows as last read or written; 0 for no row.
        totals: sums of a rate's starts, by gate and time: until then, and later.
        oldest_starts: a rate's first starts after a time, by gate, time and limit.
    """

    def __init__(self) -> None:
        self.answers: dict[BoundSelect, Rows] = {}
        self.used: dict[BoundSelect, None] = {}
        self._each: dict[Each, dict[Any, Rows]] = {}
        self.gates: dict[str, GateRow | None] = {}
        self.none_parked: set[str] = set()
        self.many_parked: set[str] = set()
        self.gates_read: dict[str, None] = {}
        self.fed: dict[str, None] = {}
        self.queues: dict[str, None] = {}
        self.heads: dict[int, tuple[int, Rows]] = {}
        self.wanted: dict[int, int] = {}
        self.heads_read = 0
        self.found: list[int] = []
        self.lanes_asked: dict[tuple[str, int, int], Rows | None] = {}
        self.gone: set[int] = set()
        self.new_marks: dict[int, tuple[dict[int, tuple[int, int]], int]] = {}
        self.workers: dict[str, int] = {}
        self.totals: dict[str, dict[int, tuple[int, int]]] = {}
        self.oldest_starts: dict[str, dict[tuple[int, int], list[tuple[int, int]]]] = {}
        self.finished: dict[tuple[str, int, str], Row | None] = {}
        self.promoted: Rows | None = None
        self.kept_events: int | None = None
        self.parked = ParkedCache()

    def each(self, each: Each) -> dict[Any, Rows]:
        """Return the rows by thing; callers that change rows in the store update them here."""
        return self._each.setdefault(each, {})

    def read_of(self, each: Each, things: Sequence[Thing]) -> Read | None:
        """Return the query for things that are not cached; None if all are."""
        known = self.each(each)
        missing = [one for one in dict.fromkeys(things) if one not in known]
        if not missing:
            return None

        def take(rows: Rows) -> None:
            known.update((one, []) for one in missing)
            for row in rows:
                known[row[each.place]].append(row)

        return Read(each.text, (each.pack(missing),), take)

    def flows_by_lane(self) -> dict[str, list[int]]:
        """Return the flows with waiting jobs that were read; if they are many, of some lanes."""
        found: dict[str, list[int]] = {}
        count = 0
        for (lane, _, _), rows in self.lanes_asked.items():
            if rows and count < FLOWS_TOGETHER:
                found[lane] = [flow for (flow,) in rows]
                count += len(rows)
        return found

    def invalidate(self, changes: frozenset[str], patched: Sequence[Each]) -> None:
        """Drop answers outdated by a change, except those that the caller updates itself."""
        for each, known in self._each.items():
            if known and each.of & changes and each not in patched:
                known.clear()
        if changes and self.answers:
            for key in [key for key in self.answers if key[0].of & changes]:
                del self.answers[key]


class ParkedCache:
    """For each gate that was read: its flows, their first parked jobs, and its tickets.

    The step's writes update entries, or drop them.
    """

    def __init__(self) -> None:
        self._heads: dict[str, dict[int, tuple[Rows, bool]]] = {}
        self._most: dict[str, int] = {}
        self._tickets: dict[str, dict[int, list[Ticket]]] = {}
        self._gate_of: dict[int, str] = {}

    def knows(self, gate: str, most: int) -> bool:
        """Return whether the tickets and enough heads of each flow are cached.

        Enough are `most`, all that exist, or as many as the read returned: a read of many flows
        returns few heads of each.
        """
        heads = self._heads.get(gate)
        if heads is None or gate not in self._tickets:
            return False
        most = min(most, self._most[gate])
        return all(whole or len(rows) >= most for rows, whole in heads.values())

    def take(self, gate: str, most: int, heads: Iterable[tuple[int, Row]]) -> None:
        """Cache the heads of all flows parked at a gate.

        Args:
            most: maximum number of heads per flow in the read.
            heads: each with its flow, in order.
        """
        flows: dict[int, Rows] = {}
        for flow, row in heads:
            flows.setdefault(flow, []).append(row)
            self._gate_of[row[2]] = gate
        self._most[gate] = most
        self._heads[gate] = {flow: (rows, len(rows) < most) for flow, rows in flows.items()}

    def take_tickets(self, gate: str, tickets: Iterable[tuple[int, Ticket]]) -> None:
        """Cache a gate's tickets, each with its flow, in order."""
        flows: dict[int, list[Ticket]] = {}
        for flow, ticket in tickets:
            flows.setdefault(flow, []).append(ticket)
            self._gate_of[ticket[2]] = gate
        self._tickets[gate] = flows

    def flows(self, gate: str, after: int, limit: int) -> list[int] | None:
        """Return the same as `JobTable.parked_flows`; None if it is not cached."""
        known = self._heads.get(gate)
        if known is None:
            return None
        return sorted(flow for flow in known if flow > after)[:limit]

    def heads(self, gate: str, flow: int, limit: int) -> Rows | None:
        """Return the same as `JobTable.parked_heads`; None if it is not cached."""
        known = self._heads.get(gate)
        if known is None:
            return None
        rows, whole = known.get(flow, ([], True))
        return rows[:limit] if whole or len(rows) >= limit else None

    def tickets(self, gate: str, flow: int) -> Sequence[Ticket] | None:
        """Return the same as `JobTable.tickets`; None if it is not cached."""
        known = self._tickets.get(gate)
        return None if known is None else known.get(flow, ())

    def feed(self, seqs: Sequence[int], gate: str, amounts: Sequence[int]) -> None:
        """Move jobs parked at a gate to its tickets."""
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
        """Remove jobs that are no longer parked and hold no ticket."""
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
                    # Uncached jobs of the flow may still be parked there.
                    del self._heads[gate]
            for flow, known in tickets.items():
                tickets[flow] = [one for one in known if one[2] != seq]

    def forget(self, gate: str) -> None:
        """Drop a gate from the cache."""
        self._heads.pop(gate, None)
        self._tickets.pop(gate, None)
