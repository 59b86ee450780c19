"""Why a job is not running: one sentence, and the facts behind it."""

from __future__ import annotations

from headway.contract.views import GateState, WhyQuery, WhyView
from headway.core.cascade import CANDIDATE, in_turn
from headway.core.duration import format_duration
from headway.core.gates.spec import GateUse
from headway.core.instant import format_instant
from headway.core.state import QUEUED, State
from headway.stores.ledger.gate_cache import GateCache
from headway.stores.ledger.gaterows import FOREVER
from headway.stores.ledger.ledger import Ledger
from headway.stores.ledger.reads.gates import gate_states
from headway.stores.ledger.reads.jobs import shown
from headway.stores.ledger.rows import JobRow

PLACES = 1_000
CANDIDATES = 8
"""Most candidates whose gates are examined."""


def read_why(ledger: Ledger, query: WhyQuery) -> WhyView | None:
    """Explain a job's state, reading at most a fixed number of rows."""
    row = ledger.jobs.load([query.id]).get(query.id)
    return None if row is None else _Why(ledger, row).view()


class _Why:
    """One job's reasons."""

    def __init__(self, ledger: Ledger, row: JobRow) -> None:
        self.ledger = ledger
        self.row = row
        self.cache = GateCache(ledger)
        self.now = ledger.now
        self.closed: list[GateState] = []
        self.amounts: dict[str, int] = {}
        self.never: list[str] = []
        self.workers = sum(
            1
            for one in ledger.workers.all()
            if row.lane in one.lanes and one.lease_until > self.now
        )
        if row.state in QUEUED:
            self._find_closed_gates()

    def _find_closed_gates(self) -> None:
        row = self.row
        flow = self.ledger.jobs.flow(row.flow)
        closed = [view.name for view in self.cache.implicit_of(flow) if not view.fits(1)]
        for use in (*flow.shared, *row.keyed):
            for one in self._uses_in_turn(use):
                view = self.cache.view(one)
                if view.never_fits(one.amount):
                    self.never.append(one.name)
                if not view.fits(one.amount, row.order):
                    closed.append(one.name)
                    self.amounts[one.name] = one.amount
        if closed:
            self.closed += gate_states(self.cache, closed)

    def _uses_in_turn(self, use: GateUse) -> list[GateUse]:
        if CANDIDATE not in use.name:
            return [use]
        names = self.row.cascade.order()[:CANDIDATES] if self.row.cascade else ()
        return [in_turn(use, name) for name in names]

    def view(self) -> WhyView:
        row = self.row
        place = None
        if row.state is State.WAITING:
            place = 1 + self.ledger.jobs.place(row.flow, row.order, PLACES)
        as_shown = (
            "blocked" if self.closed and row.state is State.WAITING else shown(self.ledger, row)
        )
        return WhyView(
            id=row.id,
            state=row.state,
            shown=as_shown,
            sentence=self._sentence(as_shown, place),
            closed=tuple(self.closed),
            never_fits=tuple(self.never),
            place=place,
            workers=self.workers,
            now=self.now,
            next_at=self._next_at(),
        )

    def _next_at(self) -> int | None:
        row = self.row
        if row.state is State.SCHEDULED:
            return row.due_at
        if row.state is State.AWAITING:
            return row.deadline_at
        if row.state is State.RUNNING:
            worker = self.ledger.workers.load(row.worker or "")
            return worker.lease_until if worker else None
        opens = [one.opens_at for one in self.closed]
        if opens and all(at is not None for at in opens):
            return max(at for at in opens if at is not None)
        return None

    def _sentence(self, as_shown: str, place: int | None) -> str:
        row = self.row
        if row.state is State.RUNNING:
            cancel = "; a cancel was requested" if row.cancel_requested else ""
            since = self._since(row.claimed_at)
            return f"running: run {row.run} with worker {row.worker}, for {since}{cancel}"
        if row.state is State.AWAITING:
            return self._awaiting()
        if row.state not in QUEUED:
            because = f": {row.reason}" if row.reason else ""
            return f"{row.state}{because}, {self._since(row.finished_at)} ago"
        parts: list[str] = []
        suspicion = self.ledger.facts.suspicion()
        if suspicion is not None:
            parts.append(f"nothing is claimed: {suspicion.message} ({suspicion.hint})")
        if row.state is State.SCHEDULED:
            parts.append(f"due {self._when(row.due_at)}")
            if row.reason and row.attempt:
                parts.append(f"attempt {row.attempt} failed: {row.reason}")
        # A gate that is too small for the job is not also reported as full.
        parts += [
            self._gate(one)
            for one in self.closed
            if one.name not in self.never or one.closed_until is not None
        ]
        parts += [self._too_small(name) for name in self.never]
        if row.parked_at is not None and all(one.name != row.parked_at for one in self.closed):
            parts.append(f"behind others at {row.parked_at}")
        if place is not None:
            shown_place = f"{PLACES}+" if place > PLACES else _ordinal(place)
            parts.append(f"{shown_place} in its flow")
        if not self.workers:
            parts.append(f"no live worker serves lane {row.lane}")
        return f"{as_shown}: {'; '.join(parts)}" if parts else as_shown

    def _awaiting(self) -> str:
        row = self.row
        doubt = "; in doubt: its worker died before its handler returned" if row.in_doubt else ""
        cancel = "; a cancel was requested" if row.cancel_requested else ""
        if row.accepted and row.cascade is not None:
            answered = row.cascade.asked[-1]
            since = self._since(answered.at)
            return f"awaiting: accepted by {answered.candidate} {since} ago, awaits its end{cancel}"
        return (
            f"awaiting: handed over {self._since(row.handed_at)} ago, "
            f"deadline {self._when(row.deadline_at)}{doubt}{cancel}"
        )

    def _too_small(self, name: str) -> str:
        gate = next(one for one in self.closed if one.name == name)
        if not gate.traits.chooses_member or gate.capacity:
            return f"never fits {name}, whose capacity is too small"
        if not gate.members:
            return f"pool {name} has no members"
        return f"pool {name} has no member with a capacity above 0"

    def _gate(self, gate: GateState) -> str:
        what = "" if gate.implicit else f"{gate.kind} "
        asks = self.amounts.get(gate.name, 1)
        kept = ""
        if gate.reserved_for == self.row.id:
            kept = ", what becomes free is kept for this job"
        elif gate.reserved_for:
            kept = f", {gate.reserved} are kept for {gate.reserved_for}"
        if gate.closed_until is not None:
            return f"{what}{gate.name} is closed{self._closing(gate)}"
        if not gate.traits.counts:
            opens = f" until {self._moment(gate.opens_at)}" if gate.opens_at else ""
            return f"outside {gate.name}{opens}"
        opens = f", opens {self._when(gate.opens_at)}" if gate.opens_at else ""
        held = f", held by {gate.holders[0].job}" if gate.holders else ""
        others = f" and {gate.holder_count - 1} more" if gate.holder_count > 1 else ""
        full = "is full" if not gate.free else f"has too little room for {asks}"
        shut = [one for one in gate.members if one.capacity != 0 and one.closed_until is not None]
        if shut and all(one in shut or one.capacity == 0 for one in gate.members):
            # All members are closed, so the pool is not full.
            first, more = shut[0], f"; so are {len(shut) - 1} more" if len(shut) > 1 else ""
            whole = "the only member" if len(shut) == 1 else "every member"
            closed = f"{first.name} is closed{self._closing(first)}{more}"
            return f"{what}{gate.name}: {whole} is closed: {closed}{held}{others}"
        beside = f", {len(shut)} of {len(gate.members)} members closed" if shut else ""
        used = f"({gate.used} of {gate.capacity}{beside})"
        return f"{what}{gate.name} {full} {used}{kept}{held}{others}{opens}"

    def _closing(self, gate: GateState) -> str:
        """Return by whom, until when and why a gate is closed, as far as known."""
        by = f" by {gate.closed_by}" if gate.closed_by else ""
        why = f" ({gate.closed_reason})" if gate.closed_reason else ""
        until = gate.closed_until or FOREVER
        return f"{by}{'' if until >= FOREVER else f' until {self._moment(until)}'}{why}"

    def _when(self, at: int | None) -> str:
        if at is None:
            return "at an unknown time"
        if at <= self.now:
            return "now"
        return f"at {self._moment(at)}"

    def _moment(self, at: int) -> str:
        return f"{format_instant(at)} (in {format_duration(at - self.now)})"

    def _since(self, at: int | None) -> str:
        return format_duration(max(0, self.now - at)) if at is not None else "a while"


def _ordinal(n: int) -> str:
    suffix = "th" if 10 <= n % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{suffix}"
