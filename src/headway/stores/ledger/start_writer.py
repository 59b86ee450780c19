"""Write the starts of a claim: permits, counts of rates, and the jobs' rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headway.contract.claims import ClaimRequest
from headway.core.cascade import in_turn
from headway.core.claim import Start
from headway.core.flow import FlowView
from headway.core.gates.spec import Hold
from headway.core.state import State
from headway.stores.ledger.gate_cache import GateCache
from headway.stores.ledger.gatekinds import RULES, GateRules
from headway.stores.ledger.gaterows import PermitRow, implicit_hold
from headway.stores.ledger.rows import GatedStart, JobRow


class Need(NamedTuple):
    """What starts take at a gate.

    Attributes:
        taken: the jobs and runs that took it, by the chosen member of a pool ("" for other kinds).
    """

    gate: str
    rules: GateRules
    template: str
    amount: int
    hold: Hold
    taken: dict[str, list[tuple[str, int]]]


class StartWriter:
    """Collects the starts of one decision and writes them together.

    Args:
        cascades: the rows of the jobs that start with a candidate, by id.

    Attributes:
        needs: what starts take, at the gates of their flows and at those of single jobs.
        of_flows: the former, by flow.
    """

    def __init__(
        self, cache: GateCache, request: ClaimRequest, lane: str, cascades: Mapping[str, JobRow]
    ) -> None:
        self.cache = cache
        self.ledger = cache.ledger
        self.request = request
        self.lane = lane
        self.cascades = cascades
        self.plain: list[int] = []
        self.gated: list[GatedStart] = []
        self.last: dict[tuple[str, str], str] = {}
        self.reserved: list[tuple[str, str]] = []
        self.ended: list[str] = []
        self.needs: list[Need] = []
        self.of_flows: dict[int, list[Need]] = {}

    def add(self, start: Start, view: FlowView) -> None:
        """Add one start."""
        head = start.head
        blocked_ms = self._blocked(start, view)
        if not (start.gated or start.candidate or blocked_ms):
            self.plain.append(head.order.seq)
            return
        needs = self.of_flows.get(view.flow)
        if needs is None:
            needs = self.of_flows[view.flow] = self._of_flow(view)
        if head.keyed:
            needs = needs + self._of_job(start)
        holder, members = (head.id, head.run + 1), {}
        for gate, rules, template, amount, _, taken in needs:
            member = ""
            if rules.chooses_member:
                member = self.last[gate, template] = start.members[gate]
            if amount > 1:
                self.reserved.append((gate, head.id))
            taken.setdefault(member, []).append(holder)
            members[gate] = member
        cascade = None
        if start.candidate:
            row = self.cascades[head.id]
            cascade = row.cascade.begin(start.candidate) if row.cascade else None
        self.gated.append(GatedStart(head.order.seq, members, start.candidate, cascade, blocked_ms))

    def _of_flow(self, view: FlowView) -> list[Need]:
        uses = {use.name: use for use in self.ledger.jobs.flow(view.flow).shared}
        needs: list[Need] = []
        for gate, amount in view.shared:
            if gate.kind is not None:
                use = uses.get(gate.name)
                hold = use.hold if use else implicit_hold(gate.name)
                template = use.template if use else ""
                needs.append(Need(gate.name, RULES[gate.kind], template, amount, hold, {}))
        self.needs += needs
        return needs

    def _of_job(self, start: Start) -> list[Need]:
        needs: list[Need] = []
        for keyed in start.head.keyed:
            use = in_turn(keyed, start.candidate)
            kind = self.cache.view(use).kind
            if kind is not None:
                needs.append(Need(use.name, RULES[kind], use.template, use.amount, use.hold, {}))
        self.needs += needs
        return needs

    def _blocked(self, start: Start, view: FlowView) -> int:
        period = self.ledger.closed_periods.get(view.flow)
        if period is None:
            return 0
        head, now = start.head, self.ledger.now
        # Its flow may have been shut while it was parked: do not count that time twice.
        waited = now - head.order.due_at - head.blocked_ms
        return max(0, min(period.overlap_ms(head.order.due_at, now), waited))

    def write(self) -> None:
        """Write the starts."""
        ledger, request = self.ledger, self.request
        n = len(self.plain) + len(self.gated)
        if not n:
            return
        if self.plain:
            ledger.jobs.start_plain(self.plain, request.worker, request.request)
        if self.gated:
            ledger.jobs.start_gated(self.gated, request.worker, request.request)
            self._take()
        ledger.counts.move(self.lane, State.WAITING, State.RUNNING, n)
        ledger.counts.happened("started", n)

    def _take(self) -> None:
        """Write what the starts take: permits, counts of rates, and the pools' members."""
        ledger, now = self.ledger, self.ledger.now
        permits: list[PermitRow] = []
        rates: dict[tuple[str, str], int] = {}
        for gate, rules, template, amount, hold, taken in self.needs:
            for member, holders in taken.items():
                total = amount * len(holders)
                if rules.counts_starts:
                    rates[gate, template] = rates.get((gate, template), 0) + total
                if rules.takes_permits:
                    name, pool = rules.permit_gate(gate, member)
                    self.cache.count_taken(name, template, total, pool)
                    permits += [
                        PermitRow(name, job, run, pool, amount, now, hold) for job, run in holders
                    ]
        for (pool, template), member in self.last.items():
            self.cache.remember_member(pool, template, member)
        self.ended = [gate for gate, job in self.reserved if self.cache.unreserve(gate, job)]
        if permits:
            ledger.permits.add(permits)
        for (gate, template), number in rates.items():
            self.cache.count_starts(gate, template, number)
        if rates:
            ledger.starts.add({gate: number for (gate, _), number in rates.items()})
