"""Views of gates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headway.contract.views import GatesQuery, GateState, HolderView, Page, SpecsQuery
from headway.core.errors import UnknownGate
from headway.core.gates.pool import member_gate
from headway.core.gates.slots import UNLIMITED, room
from headway.core.gates.spec import GateKind, GateSpec, GateUse, is_implicit
from headway.core.gates.view import GateView
from headway.stores.ledger.gate_cache import GateCache
from headway.stores.ledger.gatekinds import RULES
from headway.stores.ledger.gaterows import (
    FOREVER,
    NO_HOLDERS,
    GateRow,
    PermitRow,
)
from headway.stores.ledger.ledger import Ledger

HOLDERS = 10
PARKED = 1_000


def read_specs(ledger: Ledger, _query: SpecsQuery) -> tuple[GateSpec, ...]:
    """Return the declared gates."""
    return tuple(row.current for _, row in sorted(ledger.gates.templates().items()))


def read_gates(ledger: Ledger, query: GatesQuery) -> Page[GateState]:
    """Return gates by name: those with parked jobs, or declared ones and instances with a row."""
    cache = GateCache(ledger)
    if query.names is not None:
        return Page(rows=gate_states(cache, query.names), cursor=None)
    after = query.cursor or ""
    if query.parked:
        names = ledger.jobs.parked_gates(after, query.limit)
        end = names[-1] if len(names) == query.limit else None
        return Page(rows=gate_states(cache, names), cursor=end)
    rows = ledger.gates.page(after, query.limit + 1)
    found = {row.name for row in rows[: query.limit] if not row.pool}
    end = rows[query.limit - 1].name if len(rows) > query.limit else None
    for name in ledger.gates.templates():
        if name > after and (end is None or name <= end):
            found.add(name)
    names = sorted(found)
    if len(names) > query.limit:
        names = names[: query.limit]
        end = names[-1]
    return Page(rows=gate_states(cache, names), cursor=end)


def gate_states(cache: GateCache, names: Sequence[str]) -> tuple[GateState, ...]:
    """Return the states of gates; an undeclared name is shown as an implicit gate that is open."""
    gates = _Gates(cache, names)
    return tuple(map(gates.state, names))


class _Gates:
    """The states of several gates, with what they need read together."""

    def __init__(self, cache: GateCache, names: Sequence[str]) -> None:
        self.cache = cache
        lanes = [one.removeprefix("lane:") for one in names if one.startswith("lane:")]
        every = list(dict.fromkeys(one for name in names for one in (name, *self._members(name))))
        cache.prefetch(every)
        self._lanes = cache.ledger.lanes.load(lanes) if lanes else {}
        self._holders = cache.ledger.permits.at(every, HOLDERS)
        self._parked = cache.ledger.jobs.parked_counts(names, PARKED)

    def _members(self, name: str) -> Iterable[str]:
        """Return the gates of a pool's members."""
        try:
            place = None if is_implicit(name) else self.cache.templates.place_of(name)
        except UnknownGate:
            return
        if place is not None and not place.pool:
            for member, _ in self.cache.templates[place.template].current.members:
                yield member_gate(name, member)

    def state(self, name: str) -> GateState:
        cache = self.cache
        row = cache.find(name)
        if is_implicit(name):
            return self._implicit(name, row)
        if row is not None and row.pool and row.template in cache.templates:
            # A member that is no longer declared is shown as long as its permits are out.
            spec = cache.templates[row.template].current
            return self._member(name, row, spec, row.pool)
        try:
            place = cache.templates.place_of(name)
        except UnknownGate:
            return self._implicit(name, row)
        declared = cache.templates[place.template]
        if place.pool:
            return self._member(name, row, declared.current, place.pool)
        view = cache.view(GateUse(name=name, template=place.template))
        overridden = declared.override is not None or (row is not None and row.capacity is not None)
        return self._declared(view, row, declared.current, overridden=overridden)

    def _declared(
        self, view: GateView, row: GateRow | None, spec: GateSpec, *, overridden: bool
    ) -> GateState:
        is_template = "{" in view.name
        is_open = is_template or view.free > 0
        opens_at = None if is_open else self.cache.opens_at(view, spec.name, 1)
        members = tuple(self.state(member_gate(view.name, one)) for one, _ in spec.members)
        held, count = self._of_spec(view.name, spec, members)
        closed_until, closed_by, reason = _closing(self.cache, row)
        kept = view.reserved
        return GateState(
            name=view.name,
            kind=str(spec.kind),
            shared=spec.shared,
            template=spec.name,
            capacity=_capacity(view, spec, members),
            per_ms=spec.per_ms,
            used=_used(view, row, members),
            free=None if view.free == UNLIMITED else view.free,
            open=is_open,
            opens_at=opens_at,
            holders=held,
            holder_count=count,
            parked=0 if spec.shared else self._parked.get(view.name, 0),
            members=members,
            horizon_at=row.horizon_at if row else None,
            overridden=overridden,
            reserved=kept.amount if kept else 0,
            reserved_for=kept.job if kept else None,
            closed_until=closed_until,
            closed_by=closed_by,
            closed_reason=reason,
        )

    def _of_spec(
        self, name: str, spec: GateSpec, members: tuple[GateState, ...]
    ) -> tuple[tuple[HolderView, ...], int]:
        if members:
            held = sorted((h for one in members for h in one.holders), key=lambda h: h.since)
            return tuple(held[:HOLDERS]), sum(one.holder_count for one in members)
        rules = RULES[spec.kind]
        return self._of(name) if rules.takes_permits and not rules.chooses_member else ((), 0)

    def _of(self, name: str) -> tuple[tuple[HolderView, ...], int]:
        found = self._holders.get(name, NO_HOLDERS)
        return tuple(map(holder, found.first)), found.permits

    def _member(self, name: str, row: GateRow | None, spec: GateSpec, pool: str) -> GateState:
        declared = dict(spec.members).get(name.removeprefix(f"{pool}/"), 0)
        capacity = declared if row is None or row.capacity is None else row.capacity
        free, opens_at = room(capacity, row.used if row else 0), None
        if row is not None and row.closed_until is not None and self.cache.is_shut(row):
            free, opens_at = 0, row.closed_until if row.closed_until < FOREVER else None
        return self._slots(name, row, spec, capacity, free, opens_at)

    def _implicit(self, name: str, row: GateRow | None) -> GateState:
        capacity = row.capacity if row else None
        lane = self._lanes.get(name.removeprefix("lane:")) if name.startswith("lane:") else None
        if capacity is None and lane is not None:
            capacity = lane.current.concurrency
        view = self.cache.implicit(name, capacity) or GateView(name=name, kind=None)
        return self._slots(name, row, None, capacity, view.free, view.opens_at)

    def _slots(
        self,
        name: str,
        row: GateRow | None,
        spec: GateSpec | None,
        capacity: int | None,
        free: int,
        opens_at: int | None,
    ) -> GateState:
        """Return the state of a pool's member, or of an implicit gate, which has no spec."""
        closed_until, closed_by, reason = _closing(self.cache, row)
        held, count = self._of(name)
        return GateState(
            name=name,
            kind=str(GateKind.SLOTS) if spec else "implicit",
            shared=spec is None or spec.shared,
            template=spec.name if spec else None,
            capacity=capacity,
            per_ms=None,
            used=row.used if row else 0,
            free=None if free == UNLIMITED else free,
            open=free > 0,
            opens_at=opens_at,
            closed_until=closed_until,
            closed_by=closed_by,
            closed_reason=reason,
            overridden=row is not None and row.capacity is not None,
            holders=held,
            holder_count=count,
        )


def _closing(cache: GateCache, row: GateRow | None) -> tuple[int | None, str, str]:
    """Return until when a gate is closed, by whom, and why."""
    if row is None or not cache.is_shut(row):
        return None, "", ""
    return row.closed_until, row.closed_by, row.closed_reason


def _used(view: GateView, row: GateRow | None, members: tuple[GateState, ...]) -> int:
    if members:
        return sum(one.used for one in members)
    if view.kind is not None and RULES[view.kind].counts_starts:
        return 0 if view.most == UNLIMITED else view.counted
    return row.used if row else 0


def _capacity(view: GateView, spec: GateSpec, members: tuple[GateState, ...]) -> int | None:
    if not RULES[spec.kind].counts:
        return None
    if members:
        return sum(one.capacity or 0 for one in members)
    return view.most


def holder(permit: PermitRow) -> HolderView:
    """Return the view of a permit."""
    member = permit.gate.removeprefix(f"{permit.pool}/") if permit.pool else ""
    return HolderView(
        gate=permit.gate,
        job=permit.job,
        run=permit.run,
        member=member,
        amount=permit.amount,
        since=permit.since,
    )
