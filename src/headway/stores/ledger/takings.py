"""What the starts of a claim take: permits, starts of rates, and the jobs' own rows."""

from __future__ import annotations

from headway.contract.claims import ClaimRequest
from headway.core.cascade import in_turn
from headway.core.claim import Start
from headway.core.flow import FlowView
from headway.core.gates.pool import member_gate
from headway.core.gates.spec import GateKind, GateUse, Hold
from headway.core.gates.view import GateView
from headway.core.state import State
from headway.stores.ledger.gatenames import implicit_hold
from headway.stores.ledger.rows import GatedStart, PermitRow
from headway.stores.ledger.step import Step


class Takings:
    """The starts of one decision, gathered and written together."""

    def __init__(self, step: Step, request: ClaimRequest, lane: str) -> None:
        self.step = step
        self.ledger = step.ledger
        self.book = step.book
        self.request = request
        self.lane = lane
        self.plain: list[int] = []
        self.gated: list[GatedStart] = []
        self.permits: list[PermitRow] = []
        self.rates: dict[str, tuple[str, int]] = {}

    def add(self, start: Start, view: FlowView) -> None:
        """Takes for one start."""
        head = start.head
        if not start.gated and not start.candidate:
            self.plain.append(head.order.seq)
            return
        key = self.ledger.jobs.flow(view.flow)
        uses = {use.name: use for use in key.shared}
        members: dict[str, str] = {}
        for gate, amount in view.shared:
            self._take(start, gate, uses.get(gate.name), amount, members)
        for asked in head.keyed:
            use = in_turn(asked, start.candidate)
            self._take(start, self.book.view(use), use, use.amount, members)
        cascade = None
        if start.candidate:
            row = self.ledger.jobs.load([head.id])[head.id]
            cascade = row.cascade.begin(start.candidate) if row.cascade else None
        self.gated.append(
            GatedStart(
                head.order.seq, members, start.candidate, cascade, self._blocked(start, view)
            )
        )

    def _take(
        self,
        start: Start,
        gate: GateView,
        use: GateUse | None,
        amount: int,
        members: dict[str, str],
    ) -> None:
        if gate.kind is None:
            return
        template = use.template if use else ""
        hold = use.hold if use else implicit_hold(gate.name)
        member = start.members.get(gate.name, "")
        members[gate.name] = member
        if gate.kind is GateKind.RATE:
            _, number = self.rates.get(gate.name, ("", 0))
            self.rates[gate.name] = (template, number + amount)
        elif gate.kind is GateKind.SLOTS:
            self.book.use_up(gate.name, template, amount)
            self._permit(start, gate.name, "", amount, hold)
        elif gate.kind is GateKind.POOL:
            own = member_gate(gate.name, member)
            self.book.use_up(own, template, amount, gate.name)
            self.book.remember_member(gate.name, template, member)
            self._permit(start, own, gate.name, amount, hold)

    def _permit(self, start: Start, gate: str, pool: str, amount: int, hold: Hold) -> None:
        head = start.head
        self.permits.append(
            PermitRow(gate, head.id, head.run + 1, pool, amount, self.ledger.now, hold)
        )

    def _blocked(self, start: Start, view: FlowView) -> int:
        since = self.ledger.blocked_since.get(view.flow)
        if since is None:
            return 0
        head, now = start.head, self.ledger.now
        # While it was parked its flow may have been shut as well: no time is counted twice.
        waited = now - head.order.due_at - head.blocked_ms
        return max(0, min(now - since, waited))

    def write(self) -> None:
        """Writes all of it."""
        ledger, request = self.ledger, self.request
        n = len(self.plain) + len(self.gated)
        if not n:
            return
        if self.plain:
            ledger.jobs.start_plain(self.plain, request.worker, request.request, 0)
        if self.gated:
            ledger.jobs.start_gated(self.gated, request.worker, request.request)
        if self.permits:
            ledger.permits.add(self.permits)
        if self.rates:
            self.book.count_starts(self.rates)
        ledger.counts.move(self.lane, State.WAITING, State.RUNNING, n)
        ledger.counts.happened("started", n)
