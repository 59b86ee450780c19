"""The gates of one step: their room, permits taken and returned, and the hours computed ahead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headway.core.cascade import in_turn
from headway.core.errors import InvariantBroken
from headway.core.flow import Head
from headway.core.gates.hours import intervals
from headway.core.gates.slots import room
from headway.core.gates.spec import IMPLICIT, GateKind, GateSpec, GateUse, implicit_gates
from headway.core.gates.view import RESERVED_MS, GateView, Reservation
from headway.core.job import DAY_MS
from headway.stores.ledger.gatekinds import RULES, GateRows, rules_of
from headway.stores.ledger.gaterows import (
    ANY_LANE,
    FOREVER,
    MOST_LANES,
    DeclaredGate,
    GateRow,
    GateTemplates,
    ReturnedPermits,
    TemplateRow,
    is_closed,
    may_share_name,
    refuse_members_name,
    refuse_others_name,
)
from headway.stores.ledger.ledger import Ledger, ReadAhead
from headway.stores.ledger.rows import FlowKey

FORGET_AFTER_MS = 60_000
"""How long after its window a keyed rate is removed."""
UNKNOWN, HAS_ROOM, FULL = -1, 0, 1
"""What `full_gate` knows of a gate; one that is closed, or may be outside its hours, is unknown."""


class GateCache(GateRows):
    """The gates that one step uses; each is loaded once, and written once at the end.

    Args:
        templates: the declared gates, if the caller has read them.
    """

    ledger: Ledger
    views: dict[str, GateView]
    dirty: set[str]

    def __init__(self, ledger: Ledger, templates: GateTemplates | None = None) -> None:
        self.ledger = ledger
        self.templates = ledger.gates.templates() if templates is None else templates
        self.rows: dict[str, GateRow | None] = {}
        self.views = {}
        self.dirty = set()
        self.concurrencies: dict[str, int | None] = {}

    # Rows

    def template(self, name: str) -> TemplateRow | None:
        """Return the gate declared under a name."""
        return self.templates.get(name)

    def refuse_members_name(self, spec: GateSpec) -> None:
        """See `gaterows.refuse_members_name`, among all declared gates."""
        refuse_members_name(self.templates, spec)

    def refuse_others_name(self, use: GateUse) -> None:
        """See `gaterows.refuse_others_name`, among all declared gates."""
        rivals, own = self.templates.rivals_of(use.template), self.templates[use.template].current
        refuse_others_name(rivals, use, own)

    def may_share_name(self, use: GateUse, gates: Sequence[GateUse]) -> bool:
        """Return whether a candidate may give a gate the name of another gate, or of its job's.

        Args:
            gates: of the job, this one among them.
        """
        others = [one.name for one in gates if one is not use]
        return bool(self.templates.rivals_of(use.template)) or any(
            may_share_name(use.name, other) for other in (*others, "all", *IMPLICIT)
        )

    def place_of(self, gate: str) -> DeclaredGate:
        """Return the declared gate and the pool that a resolved name belongs to.

        Raises:
            UnknownGate: the gate is not declared.
        """
        return self.templates.place_of(gate)

    def prefetch(self, names: Iterable[str]) -> None:
        """Load several gates at once; that a gate has no row is cached too."""
        wanted = [name for name in dict.fromkeys(names) if name not in self.rows]
        if not wanted:
            return
        found = self.ledger.gates.load(wanted)
        for name in wanted:
            self.rows[name] = found.get(name)

    def due_gates(self, limit: int) -> list[str]:
        """Load the keyed gates whose timer is due, and return their names, earliest first."""
        gates = self.ledger.gates.due_timers(limit)
        if gates:
            self.ledger.read_ahead(ReadAhead(gates=gates, refits=gates))
            self.prefetch(gates)
        return gates

    def prefetch_uses(self, uses: Iterable[GateUse]) -> None:
        """Load the gates of these uses, including members of pools."""
        self.prefetch(name for use in uses for name in self._names(use.name, use.template))

    def _names(self, name: str, template: str) -> Iterable[str]:
        spec = self.spec(template)
        return (name,) if spec is None else RULES[spec.kind].row_names(name, spec)

    def find(self, name: str) -> GateRow | None:
        """Return the gate's row, if there is one."""
        if name not in self.rows:
            self.prefetch((name,))
        return self.rows[name]

    def change(self, name: str, template: str, pool: str = "") -> GateRow:
        """Return the gate's row to change, created if needed; written at the end of the step."""
        row = self.find(name)
        if row is None:
            row = self.rows[name] = GateRow(name=name, template=template, pool=pool)
        self.dirty.add(name)
        return row

    def spec(self, template: str) -> GateSpec | None:
        """Return the declared gate, with an operator's values applied."""
        declared = self.templates.get(template)
        return declared.current if declared else None

    # Views

    def view(self, use: GateUse) -> GateView:
        """Return the room that a declared gate has in this step."""
        known = self.views.get(use.name)
        if known is None:
            known = self._view_of(use.name, use.template)
            self.views[use.name] = known
        return known

    def implicit(self, name: str, capacity: int | None = None) -> GateView | None:
        """Return the room of an implicit gate; None if it has no limit and is open.

        Args:
            name: `all`, `lane:…`, `tenant:…` or `kind:…`.
            capacity: a lane's own concurrency; an operator's value for the gate overrides it.
        """
        known = self.views.get(name)
        if known is not None:
            return known
        row = self.find(name)
        if row is None and capacity is None:
            return None
        most = capacity if row is None or row.capacity is None else row.capacity
        shut = self.is_shut(row)
        if most is None and not shut:
            return None
        view = GateView(name=name, kind=None if most is None else GateKind.SLOTS)
        if most is not None:
            view.most = most
            view.free = room(most, row.used if row else 0)
        self._apply_closing(view, row)
        self.views[name] = view
        return view

    def implicit_of(self, flow: FlowKey) -> list[GateView]:
        """Return the implicit gates of a flow's jobs that have a limit or are closed."""
        views: list[GateView] = []
        for name in implicit_gates(flow.lane, flow.tenant, flow.kind):
            most = self._concurrency(flow.lane) if name.startswith("lane:") else None
            view = self.implicit(name, most)
            if view is not None:
                views.append(view)
        return views

    def is_closed_implicitly(self, flow: FlowKey) -> bool:
        """Return whether an implicit gate of a flow is, or was, closed."""
        for name in implicit_gates(flow.lane, flow.tenant, flow.kind):
            row = self.find(name)
            if row is not None and row.closed_until is not None:
                return True
        return False

    def is_paused(self, lane: str, tenant: str, kind: str) -> bool:
        """Return whether an implicit gate of such jobs is closed now."""
        for name in implicit_gates(lane, tenant, kind):  # noqa: SIM110  (as it is translated)
            if self.is_shut(self.find(name)):
                return True
        return False

    def full_gate(self, flow: FlowKey, known: dict[str, int]) -> GateUse | None:
        """Return a full gate of a flow, if none of its gates is closed or may be outside its hours.

        Return None if the gates must be examined one by one. Implicit gates are not considered.

        Args:
            known: what earlier calls found, by gate: the flows of a lane share most of their gates.
        """
        full: GateUse | None = None
        for use in flow.shared:
            found = known.get(use.name)
            if found is None:
                found = self._fullness(use)
                known[use.name] = found
            if found == UNKNOWN or use.amount > 1:
                return None
            if full is None and found == FULL:
                full = use
        return full

    def _fullness(self, use: GateUse) -> int:
        spec, row = self.spec(use.template), self.find(use.name)
        if spec is None or (row is not None and row.closed_until is not None):
            return UNKNOWN
        rules = rules_of(spec.kind)
        if not (rules.takes_permits or rules.counts_starts):
            return UNKNOWN
        return FULL if rules.is_full(self, use.name, spec, row) else HAS_ROOM

    def _concurrency(self, lane: str) -> int | None:
        if lane not in self.concurrencies:
            row = self.ledger.lanes.load([lane]).get(lane)
            self.concurrencies[lane] = row.current.concurrency if row else None
        return self.concurrencies[lane]

    def _view_of(self, name: str, template: str) -> GateView:
        spec = self.spec(template)
        if spec is None:
            message = f"the gate {name!r} is needed, but {template!r} is not declared"
            raise InvariantBroken(message)
        row = self.find(name)
        view = GateView(name=name, kind=spec.kind, template=template)
        rules_of(spec.kind).fill_room(self, view, spec, row)
        self._apply_closing(view, row)
        one = row.reserved if row is not None else None
        if one is not None and one.until_at > self.ledger.now and one.amount <= view.most:
            view.reserved = one
        return view

    def is_shut(self, row: GateRow | None) -> bool:
        """Return whether the gate is closed now, regardless of its limit."""
        return is_closed(row, self.ledger.now)

    def _apply_closing(self, view: GateView, row: GateRow | None) -> None:
        if row is None or not self.is_shut(row) or row.closed_until is None:
            return
        opens_at = 0 if view.free else view.opens_at or 0
        view.free, view.shut = 0, True
        if row.closed_until >= FOREVER:
            view.opens_at = None
        else:
            view.opens_at = max(row.closed_until, opens_at)

    def opens_at(self, view: GateView, template: str, amount: int) -> int | None:
        """Return when a gate without room for an amount opens by itself, if that is known."""
        spec = self.spec(template)
        if spec is None:
            return view.opens_at
        return rules_of(spec.kind).opens_at(self, view, spec, amount)

    # Reserving

    def reserve(self, view: GateView) -> int | None:
        """Write a gate's reservation, if it is new or half of its time has passed.

        Returns:
            When a claim must renew it; None if the gate's timer does, because jobs park there.
        """
        one, row, now = view.reserved, self.find(view.name), self.ledger.now
        spec = self.spec(view.template)
        if one is None or spec is None:
            return None
        known = row.reserved if row is not None else None
        half = RESERVED_MS // 2
        if known is None or not _are_alike(known, one) or known.until_at <= now + half:
            until_at = now + RESERVED_MS
            known = Reservation(one.job, one.order, one.amount, until_at)
            row = self.change(view.name, view.template)
            row.reserved = known
            if not spec.shared:
                row.timer_at = min(row.timer_at or until_at, until_at)
        view.reserved = known
        return known.until_at - half if spec.shared else None

    def unreserve(self, gate: str, job: str) -> bool:
        """End a gate's reservation for a job, and return whether there was one."""
        row = self.find(gate)
        if row is None or row.reserved is None or row.reserved.job != job:
            return False
        self.change(gate, row.template).reserved = None
        self.forget_view(gate)
        return True

    def remember_lane(self, name: str, template: str, lane: str) -> None:
        """Record that a lane waits for a gate, to be woken when the gate has room."""
        row = self.find(name)
        known = row.lanes if row is not None else ()
        if lane in known or ANY_LANE in known:
            return
        lanes = (*known, lane) if len(known) < MOST_LANES else (ANY_LANE,)
        self.change(name, template).lanes = lanes

    # Taking and returning permits

    def count_taken(self, name: str, template: str, amount: int, pool: str = "") -> None:
        """Count permits of a Slots, a pool's member or an implicit gate as taken."""
        row = self.change(name, template, pool)
        row.used += amount

    def count_starts(self, name: str, template: str, number: int) -> None:
        """Count starts of a rate, and remove those that have left the window.

        The caller adds the starts to the table, those of several rates at once.
        """
        row = self.change(name, template)
        spec = self.spec(template)
        if row.used and spec is not None:
            row.used -= self.ledger.starts.trim(name, self.ledger.now - (spec.per_ms or 0))
        row.used += number
        if row.timer_at is None and spec is not None and not spec.shared:
            # There may be millions of keyed rates: each is removed when its window is over.
            row.timer_at = self.ledger.now + (spec.per_ms or 0) + FORGET_AFTER_MS

    def trim(self, name: str) -> None:
        """Remove a rate's starts that have left the window."""
        row = self.find(name)
        spec = self.spec(row.template) if row is not None else None
        if row is None or spec is None or not rules_of(spec.kind).counts_starts or not row.used:
            return
        row = self.change(name, row.template)
        row.used -= self.ledger.starts.trim(name, self.ledger.now - (spec.per_ms or 0))
        if row.used and not spec.shared and row.timer_at is None:
            row.timer_at = self.ledger.now + (spec.per_ms or 0) + FORGET_AFTER_MS
        self.forget_view(name)

    def give_back(self, gate: str, amount: int) -> None:
        """Count permits as returned, and drop the cached view.

        Raises:
            InvariantBroken: fewer permits are out; the step must be rolled back.
        """
        row = self.find(gate)
        if row is None or row.used < amount:
            message = f"{amount} permits of {gate!r} are returned, but fewer are out"
            raise InvariantBroken(message)
        row.used -= amount
        self.dirty.add(gate)
        self.forget_view(gate)

    def give_back_all(self, returned: Sequence[ReturnedPermits]) -> list[str]:
        """Count permits as returned, and return the keyed gates that may be fed now."""
        names: list[str] = []
        for one in returned:
            names.append(one.gate)
            if one.pool:
                names.append(one.pool)
        self.prefetch(names)
        for one in returned:
            self.give_back(one.gate, one.amount)
        return self._have_room(names)

    def end_reservations(self, reserved: Iterable[tuple[str, str]]) -> list[str]:
        """End the reservations of jobs that left their queue.

        Args:
            reserved: gates, each with a job.

        Returns:
            The keyed gates that may be fed now.
        """
        self.prefetch(gate for gate, _ in reserved)
        return self._have_room([gate for gate, job in reserved if self.unreserve(gate, job)])

    def _have_room(self, gates: Sequence[str]) -> list[str]:
        """Wake the lanes that shared gates blocked; return the keyed gates, which need feeding."""
        freed: list[str] = []
        for gate in dict.fromkeys(gates):
            if self._is_keyed(gate):
                freed.append(gate)
            else:
                self._wake_waiting(gate)
        return freed

    def _is_keyed(self, gate: str) -> bool:
        row = self.find(gate)
        spec = self.spec(row.template) if row is not None else None
        if spec is None:
            # A pool without a row of its own: its members' rows have the template.
            return row is None or bool(row.template)
        return not spec.shared

    def _wake_waiting(self, gate: str) -> None:
        """Wake the lanes that a shared gate blocked, and clear the list.

        The next claim that finds the gate shut adds its lane again.
        """
        row = self.find(gate)
        if row is not None and row.lanes:
            for lane in row.lanes:
                self.ledger.wake(None if lane == ANY_LANE else lane)
            self.change(gate, row.template, row.pool).lanes = ()

    def forget_view(self, gate: str) -> None:
        """Drop the cached views of a gate that changed and of its pool."""
        self.views.pop(gate, None)
        row = self.find(gate)
        if row is not None and row.pool:
            self.views.pop(row.pool, None)

    def remember_member(self, pool: str, template: str, member: str) -> None:
        """Store the member that was chosen last, if the pool's strategy depends on it."""
        spec = self.spec(template)
        if spec is not None and spec.strategy == "round_robin":
            self.change(pool, template).last = member

    def save(self) -> None:
        """Write the changed rows."""
        if self.dirty:
            self.ledger.gates.save(row for name in self.dirty if (row := self.rows[name]))
            # Idle rows have been deleted, so the rows must be read again.
            for name in self.dirty:
                del self.rows[name]
            self.dirty.clear()


def _are_alike(one: Reservation, other: Reservation) -> bool:
    """Return whether two reservations differ only in when they end."""
    is_of_one = one.job == other.job and one.amount == other.amount
    return is_of_one and one.order == other.order


def use_at(head: Head, gate: str) -> GateUse:
    """Return the use by which a parked job waits at a gate; see `use_of`."""
    return use_of(head.id, head.keyed, head.candidates, gate)


def use_of(job: str, keyed: Sequence[GateUse], candidates: Sequence[str], gate: str) -> GateUse:
    """Return the use by which a job waits at a gate, with its name resolved.

    Args:
        candidates: those of a cascade; empty for other jobs.
        gate: where it is parked, or whose ticket it carries.

    Raises:
        InvariantBroken: the job does not use this gate.
    """
    for use in keyed:
        for candidate in candidates or ("",):
            turn = in_turn(use, candidate)
            if turn.name == gate:
                return turn
    message = f"job {job} is parked at {gate!r}, which it does not use"
    raise InvariantBroken(message)


HORIZON_MS = 16 * DAY_MS
"""How far ahead open intervals are computed."""
EXTEND_BELOW_MS = 15 * DAY_MS
"""A sweep extends hours that are computed less far ahead than this."""


def ensure_hours(cache: GateCache, use: GateUse) -> None:
    """Create the row of an Hours gate that is used for the first time."""
    row = cache.find(use.name)
    if row is None or row.horizon_at is None:
        extend(cache, use.name, use.template, use.zone or "UTC")


def extend(cache: GateCache, name: str, template: str, zone: str) -> None:
    """Compute the open intervals of an Hours gate from now to its horizon."""
    spec = cache.spec(template)
    if spec is None or spec.hours is None:
        return
    now = cache.ledger.now
    row = cache.change(name, template)
    row.zone = zone
    row.opens = intervals(spec.hours, zone, now, now + HORIZON_MS)
    row.horizon_at = now + HORIZON_MS
    cache.forget_view(name)


def extend_short(cache: GateCache, limit: int) -> int:
    """Extend hours whose horizon is near, and return how many were extended."""
    rows = cache.ledger.gates.short_horizons(cache.ledger.now + EXTEND_BELOW_MS, limit)
    for row in rows:
        extend(cache, row.name, row.template, row.zone or "UTC")
    return len(rows)
