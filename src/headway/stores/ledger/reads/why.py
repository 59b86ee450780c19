"""Why a job is not running: one sentence, and the facts behind it."""

from __future__ import annotations

from collections.abc import Iterable

from headway.contract.views import GateState, WhyQuery, WhyView
from headway.core.cascade import in_turn
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
    """One job's reasons.

    Attributes:
        ways: the closed gates in the turn of each candidate; those of one must open. Outside
            cascades there is one.
    """

    def __init__(self, ledger: Ledger, row: JobRow) -> None:
        self.ledger = ledger
        self.row = row
        self.cache = GateCache(ledger)
        self.now = ledger.now
        self.closed: list[GateState] = []
        self.amounts: dict[str, int] = {}
        self.never: list[str] = []
        self.ways: list[list[str]] = []
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
        closed += self._closed_of(flow.shared)
        # A cascade needs the gates of one of its candidates; once parked, of the one it waits for.
        names = row.cascade.order()[:CANDIDATES] if row.cascade is not None else ("",)
        turns = [[in_turn(use, name) for use in row.keyed] for name in names]
        shut = [self._closed_of(turn) for turn in turns]
        if row.parked_at is None and not all(shut):
            shut = []
        each = dict.fromkeys(name for one in shut for name in one)
        if closed or each:
            self.closed += gate_states(self.cache, [*closed, *each])
        needed = [(one.name, self.amounts.get(one.name, 0)) for one in self.closed]
        self.never += [name for name, n in needed if n and self.cache.views[name].never_fits(n)]
        self.ways = [
            [*closed, *one]
            for turn, one in zip(turns, shut, strict=False)
            if row.parked_at is None or any(use.name == row.parked_at for use in turn)
        ] or [closed]

    def _closed_of(self, uses: Iterable[GateUse]) -> list[str]:
        closed: list[str] = []
        for use in uses:
            if not self.cache.view(use).fits(use.amount, self.row.order):
                closed.append(use.name)
                self.amounts[use.name] = use.amount
        return closed

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
        opens = {one.name: one.opens_at for one in self.closed if one.opens_at is not None}
        known = [way for way in self.ways if way and all(name in opens for name in way)]
        return min((max(opens[name] for name in way) for way in known), default=None)

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
