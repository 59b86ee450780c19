"""The rules of each kind of gate: its room, whether it is full, and when it opens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from headway.core.gates.hours import is_open, next_opening
from headway.core.gates.opening import HOURS
from headway.core.gates.pool import POOL, member_gate
from headway.core.gates.rate import RATE
from headway.core.gates.slots import SLOTS, room
from headway.core.gates.spec import GateKind, GateSpec, GateTraits
from headway.core.gates.view import GateView, MemberView
from headway.stores.ledger.gaterows import FOREVER, GateRow, is_closed
from headway.stores.ledger.ledger import Ledger


class GateRows(ABC):
    """The rows of the gates that one step uses."""

    ledger: Ledger

    @abstractmethod
    def find(self, name: str) -> GateRow | None:
        """Return the gate's row, if there is one."""


# Slots: a limit on the permits that are out at once.


def slots_room(_gates: GateRows, view: GateView, spec: GateSpec, row: GateRow | None) -> None:
    """See `GateRules.fill_room`."""
    view.most = limit_of(spec.capacity, row)
    view.free = room(view.most, row.used if row else 0)


def are_slots_full(_gates: GateRows, _name: str, spec: GateSpec, row: GateRow | None) -> bool:
    """See `GateRules.is_full`."""
    return row is not None and row.used >= limit_of(spec.capacity, row)


# Rate: a limit on the starts in a window.

OLDEST = 64
"""Times of starts of a rate that are read first, and the factor for further reads."""


def rate_room(gates: GateRows, view: GateView, spec: GateSpec, row: GateRow | None) -> None:
    """See `GateRules.fill_room`."""
    view.most = limit_of(spec.limit, row)
    if row is not None and row.used:
        after_at = gates.ledger.now - (spec.per_ms or 0)
        view.counted = gates.ledger.starts.total(view.name, after_at, row.used)
    view.free = room(view.most, view.counted)


def rate_opens_at(gates: GateRows, view: GateView, spec: GateSpec, amount: int) -> int | None:
    """See `GateRules.opens_at`."""
    row = gates.find(view.name)
    if (
        view.opens_at is not None
        or row is None
        or is_closed(row, gates.ledger.now)
        or amount > view.most
    ):
        return view.opens_at
    per_ms = spec.per_ms or 0
    after_at = gates.ledger.now - per_ms
    # This many starts must leave the window first; each row counts at least one start. The limits
    # are few, so that a store that caches reads answers jobs with other amounts from one of them.
    excess = gates.ledger.starts.total(view.name, after_at, row.used) + amount - view.most
    limit = 1 if excess <= 1 else OLDEST
    while True:
        left, rows = excess, gates.ledger.starts.oldest(view.name, after_at, limit)
        for at, number in rows:
            left -= number
            if left <= 0:
                return at + per_ms
        if len(rows) < limit:
            return None
        limit *= OLDEST


# Hours: open at certain hours; a start takes nothing.


def hours_room(gates: GateRows, view: GateView, _spec: GateSpec, row: GateRow | None) -> None:
    """See `GateRules.fill_room`."""
    now, opens = gates.ledger.now, row.opens if row else ()
    if not is_open(opens, now):
        view.free, view.shut = 0, True
        view.opens_at = next_opening(opens, now)


# Pool: several members with their own permits; a start takes permits of one member.


def pool_room(gates: GateRows, view: GateView, spec: GateSpec, row: GateRow | None) -> None:
    """See `GateRules.fill_room`."""
    view.strategy = spec.strategy
    view.last = row.last if row else ""
    view.most, view.free = 0, 0
    opens_at: int | None = None
    for name, capacity in spec.members:
        own = gates.find(member_gate(view.name, name))
        most, used = limit_of(capacity, own), own.used if own else 0
        free = room(most, used)
        if own is not None and own.closed_until is not None and is_closed(own, gates.ledger.now):
            free = 0
            if own.closed_until < FOREVER:
                opens_at = min(own.closed_until, opens_at or own.closed_until)
        view.members.append(MemberView(name=name, capacity=most, used=used, free=free))
        view.most, view.free = max(view.most, most), max(view.free, free)
    # Set even while another member is free: this step may take that one.
    view.opens_at = opens_at


def is_pool_full(gates: GateRows, name: str, spec: GateSpec, _row: GateRow | None) -> bool:
    """See `GateRules.is_full`."""
    for member, capacity in spec.members:
        own = gates.find(member_gate(name, member))
        if own is None or own.used < limit_of(capacity, own):
            return False
    return True


# What a kind does that has no rule of its own.


def is_never_full(_gates: GateRows, _name: str, _spec: GateSpec, _row: GateRow | None) -> bool:
    """See `GateRules.is_full`."""
    return False


def opens_as_seen(_gates: GateRows, view: GateView, _spec: GateSpec, _amount: int) -> int | None:
    """See `GateRules.opens_at`."""
    return view.opens_at


def limit_of(declared: int | None, row: GateRow | None) -> int:
    """Return a gate's limit: an operator's value for this instance, or the declared one."""
    if row is not None and row.capacity is not None:
        return row.capacity
    return declared or 0


@dataclass(frozen=True, kw_only=True)
class GateRules(GateTraits):
    """The rules of one kind of gate: its traits, and what depends on the gate's rows.

    Attributes:
        fill_room: fills in a view with the room that the gate has now, as if it were not closed.
        is_full: returns whether the gate certainly has no room until a permit is returned; a claim
            checks this for each gate of its flows before it examines them, since most are full.
        opens_at: returns when a gate without room for an amount opens by itself, if that is known.
    """

    fill_room: Callable[[GateRows, GateView, GateSpec, GateRow | None], None]
    is_full: Callable[[GateRows, str, GateSpec, GateRow | None], bool] = is_never_full
    opens_at: Callable[[GateRows, GateView, GateSpec, int], int | None] = opens_as_seen

    def row_names(self, name: str, spec: GateSpec) -> Iterable[str]:
        """Return the names of the rows that `fill_room` reads."""
        if not self.chooses_member:
            return (name,)
        return (name, *(member_gate(name, member) for member, _ in spec.members))

    def permit_gate(self, name: str, member: str) -> tuple[str, str]:
        """Return the gate whose permits a start takes, and its pool ("" if it has none).

        Args:
            member: the member of a pool that the claim chose.
        """
        return (member_gate(name, member), name) if self.chooses_member else (name, "")


# `vars`, so that a trait is stated in `core` alone, and is read from the rules without a call.
RULES: Mapping[GateKind, GateRules] = {
    GateKind.SLOTS: GateRules(**vars(SLOTS), fill_room=slots_room, is_full=are_slots_full),
    GateKind.RATE: GateRules(**vars(RATE), fill_room=rate_room, opens_at=rate_opens_at),
    GateKind.HOURS: GateRules(**vars(HOURS), fill_room=hours_room),
    GateKind.POOL: GateRules(**vars(POOL), fill_room=pool_room, is_full=is_pool_full),
}


def rules_of(kind: GateKind) -> GateRules:
    """Return the rules of a kind of gate."""
    return RULES[kind]
