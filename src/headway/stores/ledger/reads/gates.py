"""Views of gates."""

from __future__ import annotations

from headway.contract.views import GatesQuery, GateState, HolderView, Page, SpecsQuery
from headway.core.errors import UnknownGate
from headway.core.gates.pool import member_gate
from headway.core.gates.slots import UNLIMITED
from headway.core.gates.spec import GateKind, GateSpec, GateUse
from headway.core.gates.view import GateView
from headway.stores.ledger.gatebook import GateBook
from headway.stores.ledger.gatenames import is_implicit, place_of
from headway.stores.ledger.gaterows import FOREVER, GateRow, PermitRow
from headway.stores.ledger.ledger import Ledger

HOLDERS = 10
PARKED = 1_000


def read_specs(ledger: Ledger, query: SpecsQuery) -> tuple[GateSpec, ...]:
    """Return the declared gates."""
    del query
    return tuple(row.current for _, row in sorted(ledger.gates.templates().items()))


def read_gates(ledger: Ledger, query: GatesQuery) -> Page[GateState]:
    """Return gates by name: those with parked jobs, or declared ones and instances with a row."""
    book = GateBook(ledger)
    if query.names is not None:
        return Page(rows=tuple(gate_state(book, name) for name in query.names), cursor=None)
    after = query.cursor or ""
    if query.parked:
        names = ledger.jobs.parked_gates(after, query.limit)
        end = names[-1] if len(names) == query.limit else None
        return Page(rows=tuple(gate_state(book, name) for name in names), cursor=end)
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
    return Page(rows=tuple(gate_state(book, name) for name in names), cursor=end)


def gate_state(book: GateBook, name: str, *, holders: bool = True) -> GateState:
    """Return the state of one gate.

    Args:
        book: the gates of the snapshot.
        holders: whether to list its first holders.

    Returns:
        Its state; an undeclared name is shown as an implicit gate that is open.
    """
    row = book.find(name)
    if is_implicit(name):
        return _implicit_state(book, name, row, holders=holders)
    if row is not None and row.pool and row.template in book.templates:
        # A member that is no longer declared is shown while its permits are taken.
        spec = book.templates[row.template].current
        return _member_state(book, name, row, spec, row.pool, holders=holders)
    try:
        place = place_of(book.templates, name)
    except UnknownGate:
        return _implicit_state(book, name, row, holders=holders)
    declared = book.templates[place.template]
    if place.pool:
        return _member_state(book, name, row, declared.current, place.pool, holders=holders)
    spec = declared.current
    view = book.view(GateUse(name=name, template=place.template))
    is_template = "{" in name
    return _state(
        book,
        view,
        row,
        spec,
        overridden=declared.override is not None or (row is not None and row.capacity is not None),
        opens_at=None if is_template else book.opens_at(view, place.template, 1),
        is_open=is_template or view.free > 0,
        holders=holders,
    )


def _state(  # noqa: PLR0913  (one record of many facts)
    book: GateBook,
    view: GateView,
    row: GateRow | None,
    spec: GateSpec,
    *,
    overridden: bool,
    opens_at: int | None,
    is_open: bool,
    holders: bool,
) -> GateState:
    members: tuple[GateState, ...] = ()
    if spec.kind is GateKind.POOL:
        members = tuple(
            gate_state(book, member_gate(view.name, member), holders=holders)
            for member, _ in spec.members
        )
    used = _used(view, row, members)
    held, count = _holders(book, view.name, spec, members) if holders else ((), 0)
    closed_until, closed_by, reason = _closing(book, row)
    kept = view.reserved
    return GateState(
        name=view.name,
        kind=str(spec.kind),
        shared=spec.shared,
        template=spec.name,
        capacity=_capacity(view, spec, members),
        per_ms=spec.per_ms,
        used=used,
        free=None if view.free == UNLIMITED else view.free,
        open=is_open,
        opens_at=None if is_open else opens_at,
        holders=held,
        holder_count=count,
        parked=0 if spec.shared else book.ledger.jobs.parked_count(view.name, PARKED),
        members=members,
        horizon_at=row.horizon_at if row else None,
        overridden=overridden,
        reserved=kept.amount if kept else 0,
        reserved_for=kept.job if kept else None,
        closed_until=closed_until,
        closed_by=closed_by,
        closed_reason=reason,
    )


def _closing(book: GateBook, row: GateRow | None) -> tuple[int | None, str, str]:
    """Return until when a gate is closed, by whom and why."""
    if row is None or row.closed_until is None or row.closed_until <= book.ledger.now:
        return None, "", ""
    return row.closed_until, row.closed_by, row.closed_reason


def _used(view: GateView, row: GateRow | None, members: tuple[GateState, ...]) -> int:
    if members:
        return sum(one.used for one in members)
    if view.kind is GateKind.RATE:
        return 0 if view.most == UNLIMITED else view.counted
    return row.used if row else 0


def _capacity(view: GateView, spec: GateSpec, members: tuple[GateState, ...]) -> int | None:
    if spec.kind is GateKind.HOURS:
        return None
    if members:
        return sum(one.capacity or 0 for one in members)
    return view.most


def _holders(
    book: GateBook, name: str, spec: GateSpec, members: tuple[GateState, ...]
) -> tuple[tuple[HolderView, ...], int]:
    if members:
        held = sorted((h for one in members for h in one.holders), key=lambda h: h.since)
        return tuple(held[:HOLDERS]), sum(one.holder_count for one in members)
    if spec.kind is not GateKind.SLOTS:
        return (), 0
    return _of_gate(book, name)


def _of_gate(book: GateBook, name: str) -> tuple[tuple[HolderView, ...], int]:
    count, _ = book.ledger.permits.count(name)
    return tuple(holder(one) for one in book.ledger.permits.at(name, HOLDERS)), count


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


def _member_state(
    book: GateBook, name: str, row: GateRow | None, spec: GateSpec, pool: str, *, holders: bool
) -> GateState:
    member = name.removeprefix(f"{pool}/")
    declared = dict(spec.members).get(member, 0)
    capacity = declared if row is None or row.capacity is None else row.capacity
    used = row.used if row else 0
    closed_until, closed_by, reason = _closing(book, row)
    free = 0 if closed_until is not None else max(0, capacity - used)
    held, count = _of_gate(book, name) if holders else ((), 0)
    return GateState(
        name=name,
        kind=str(GateKind.SLOTS),
        shared=spec.shared,
        template=spec.name,
        capacity=capacity,
        per_ms=None,
        used=used,
        free=free,
        open=free > 0,
        opens_at=closed_until if closed_until is not None and closed_until < FOREVER else None,
        closed_until=closed_until,
        closed_by=closed_by,
        closed_reason=reason,
        overridden=row is not None and row.capacity is not None,
        holders=held,
        holder_count=count,
    )


def _implicit_state(book: GateBook, name: str, row: GateRow | None, *, holders: bool) -> GateState:
    capacity = row.capacity if row else None
    if name.startswith("lane:"):
        lane = name.removeprefix("lane:")
        spec = book.ledger.lanes.load([lane]).get(lane)
        if capacity is None and spec is not None:
            capacity = spec.current.concurrency
    view = book.implicit(name, capacity) or GateView(name=name, kind=None)
    closed_until, closed_by, reason = _closing(book, row)
    held, count = _of_gate(book, name) if holders else ((), 0)
    return GateState(
        name=name,
        kind="implicit",
        shared=True,
        template=None,
        capacity=capacity,
        per_ms=None,
        used=row.used if row else 0,
        free=None if view.free == UNLIMITED else view.free,
        open=view.free > 0,
        opens_at=view.opens_at,
        closed_until=closed_until,
        closed_by=closed_by,
        closed_reason=reason,
        overridden=row is not None and row.capacity is not None,
        holders=held,
        holder_count=count,
    )
