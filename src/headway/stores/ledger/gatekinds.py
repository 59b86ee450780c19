"""The rules of each kind of gate: room, when it opens, what a start takes, what can be set."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Protocol

from headway.core.gates.hours import is_open, next_opening
from headway.core.gates.pool import member_gate
from headway.core.gates.slots import room
from headway.core.gates.spec import GateKind, GateSpec
from headway.core.gates.view import GateView, MemberView
from headway.stores.ledger.gaterows import FOREVER, GateRow
from headway.stores.ledger.ledger import Ledger


class GateRows(Protocol):
    """The rows of the gates that one step uses."""

    ledger: Ledger

    def find(self, name: str) -> GateRow | None:
        """Return the gate's row, if there is one."""
        ...

    def is_shut(self, row: GateRow | None) -> bool:
        """Return whether the gate is closed now, regardless of its limit."""
        ...


class GateRules(ABC):
    """The rules of one kind of gate.

    Attributes:
        takes_permits: whether a start takes permits, which are returned later.
        counts_starts: whether a start is counted for the length of a window.
        chooses_member: whether a start takes a member's permits; a pool may have no members.
        settable: the fields of `SetGate` that apply to a declared gate of this kind.
        has_own_limit: whether one instance of a declared gate can have its own limit.
    """

    takes_permits: bool = False
    counts_starts: bool = False
    chooses_member: bool = False
    settable: frozenset[str] = frozenset()
    has_own_limit: bool = False

    @abstractmethod
    def fill_room(
        self, gates: GateRows, view: GateView, spec: GateSpec, row: GateRow | None
    ) -> None:
        """Fill in a view with the room that the gate has now, as if it were not closed."""

    def is_full(self, gates: GateRows, name: str, spec: GateSpec, row: GateRow | None) -> bool:
        """Return whether the gate certainly has no room until a permit is returned.

        A claim checks this for each flow before it examines the flow's gates, since most are full.
        """
        del gates, name, spec, row
        return False

    def opens_at(self, gates: GateRows, view: GateView, spec: GateSpec, amount: int) -> int | None:
        """Return when a gate without room for an amount opens by itself, if that is known."""
        del gates, spec, amount
        return view.opens_at

    def row_names(self, name: str, spec: GateSpec) -> Iterable[str]:
        """Return the names of the rows that `fill_room` reads."""
        del spec
        return (name,)

    def permit_gate(self, name: str, members: Mapping[str, str]) -> tuple[str, str]:
        """Return the gate whose permits a start takes, and its pool ("" if it has none).

        Args:
            members: the members chosen by the claim, by pool.
        """
        del members
        return name, ""


class SlotsRules(GateRules):
    """A limit on the permits that are out at once."""

    takes_permits = True
    settable = frozenset({"capacity"})
    has_own_limit = True

    def fill_room(
        self, gates: GateRows, view: GateView, spec: GateSpec, row: GateRow | None
    ) -> None:
        del gates
        view.most = _limit(spec.capacity, row)
        view.free = room(view.most, row.used if row else 0)

    def is_full(self, gates: GateRows, name: str, spec: GateSpec, row: GateRow | None) -> bool:
        """See `GateRules.is_full`."""
        del gates, name
        return row is not None and row.used >= _limit(spec.capacity, row)


class RateRules(GateRules):
    """A limit on the starts in a window."""

    counts_starts = True
    settable = frozenset({"limit", "per_ms"})
    has_own_limit = True

    def fill_room(
        self, gates: GateRows, view: GateView, spec: GateSpec, row: GateRow | None
    ) -> None:
        view.most = _limit(spec.limit, row)
        if row is not None and row.used:
            after_at = gates.ledger.now - (spec.per_ms or 0)
            view.counted = gates.ledger.starts.total(view.name, after_at)
        view.free = room(view.most, view.counted)

    def opens_at(self, gates: GateRows, view: GateView, spec: GateSpec, amount: int) -> int | None:
        if view.opens_at is not None:
            return view.opens_at
        if gates.is_shut(gates.find(view.name)) or amount > view.most:
            return None
        starts, per_ms = gates.ledger.starts, spec.per_ms or 0
        after_at = gates.ledger.now - per_ms
        # This many starts must leave the window first; each row counts at least one start.
        excess = starts.total(view.name, after_at) + amount - view.most
        for at, number in starts.oldest(view.name, after_at, max(1, excess)):
            excess -= number
            if excess <= 0:
                return at + per_ms
        return None


class HoursRules(GateRules):
    """Open at certain hours; a start takes nothing."""

    def fill_room(
        self, gates: GateRows, view: GateView, spec: GateSpec, row: GateRow | None
    ) -> None:
        del spec
        now, opens = gates.ledger.now, row.opens if row else ()
        if not is_open(opens, now):
            view.free, view.shut = 0, True
            view.opens_at = next_opening(opens, now)


class PoolRules(GateRules):
    """Several members with their own permits; a start takes permits of one member."""

    takes_permits = True
    chooses_member = True
    settable = frozenset({"members"})

    def fill_room(
        self, gates: GateRows, view: GateView, spec: GateSpec, row: GateRow | None
    ) -> None:
        view.strategy = spec.strategy
        view.last = row.last if row else ""
        opens: list[int] = []
        for name, capacity in spec.members:
            own = gates.find(member_gate(view.name, name))
            most, used = _limit(capacity, own), own.used if own else 0
            shut = gates.is_shut(own)
            if shut and own is not None and own.closed_until and own.closed_until < FOREVER:
                opens.append(own.closed_until)
            free = 0 if shut else room(most, used)
            view.members.append(MemberView(name=name, capacity=most, used=used, free=free))
        view.most = max((one.capacity for one in view.members), default=0)
        view.free = max((one.free for one in view.members), default=0)
        # Set even while another member is free: this step may take that one.
        view.opens_at = min(opens, default=None)

    def is_full(self, gates: GateRows, name: str, spec: GateSpec, row: GateRow | None) -> bool:
        """See `GateRules.is_full`."""
        del row
        for member, capacity in spec.members:
            own = gates.find(member_gate(name, member))
            if own is None or own.used < _limit(capacity, own):
                return False
        return True

    def row_names(self, name: str, spec: GateSpec) -> Iterable[str]:
        return (name, *(member_gate(name, member) for member, _ in spec.members))

    def permit_gate(self, name: str, members: Mapping[str, str]) -> tuple[str, str]:
        return member_gate(name, members[name]), name


RULES: Mapping[GateKind, GateRules] = {
    GateKind.SLOTS: SlotsRules(),
    GateKind.RATE: RateRules(),
    GateKind.HOURS: HoursRules(),
    GateKind.POOL: PoolRules(),
}


def rules_of(kind: GateKind) -> GateRules:
    """Return the rules of a kind of gate."""
    return RULES[kind]


def _limit(declared: int | None, row: GateRow | None) -> int:
    """Return a gate's limit: an operator's value for this instance, or the declared one."""
    if row is not None and row.capacity is not None:
        return row.capacity
    return declared or 0
