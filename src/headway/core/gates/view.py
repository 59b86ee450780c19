"""A gate as one claim sees it: its free permits, less those that the claim has taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headway.core.gates.pool import choose
from headway.core.gates.slots import UNLIMITED
from headway.core.gates.spec import GateKind, Strategy

RESERVED_MS = 60_000
"""How long a gate stays reserved after the last claim in which the job could not start."""


class Order(NamedTuple):
    """The order of start within a flow."""

    priority: int
    due_at: int
    seq: int


class Reservation(NamedTuple):
    """Reserves what becomes free at a gate for a job that needs more than is free now.

    Attributes:
        order: order of the job; jobs that come before it ignore the reservation.
        until_at: when the reservation ends unless it is renewed.
    """

    job: str
    order: Order
    amount: int
    until_at: int


@dataclass(slots=True, kw_only=True)
class MemberView:
    """One member of a pool, in this claim.

    Attributes:
        used: permits in use, including those of this claim.
        free: permits that can be taken; 0 while the member is closed.
    """

    name: str
    capacity: int
    used: int
    free: int


@dataclass(slots=True, kw_only=True)
class GateView:
    """One gate, in this claim.

    Attributes:
        kind: kind of the gate; None for an implicit gate that is only open or closed.
        template: name under which it is declared; "" for an implicit gate.
        most: the largest amount it could ever give at once.
        free: the largest amount it can give now.
        shut: whether it is closed or outside its hours, and not merely full.
        opens_at: when it opens by itself, if it is closed and that is known.
        members: members of a pool, in its order.
        strategy: strategy of a pool.
        last: member of a pool that was chosen last.
        counted: for a rate, the starts in the window when the view was loaded.
        reserved: the gate's reservation, if there is one.
    """

    name: str
    kind: GateKind | None
    template: str = ""
    most: int = UNLIMITED
    free: int = UNLIMITED
    shut: bool = False
    opens_at: int | None = None
    members: list[MemberView] = field(default_factory=list[MemberView])
    strategy: Strategy = "least_used"
    last: str = ""
    counted: int = 0
    reserved: Reservation | None = None

    def fits(self, amount: int, order: Order | None = None) -> bool:
        """Return whether the amount can be taken now.

        Args:
            amount: permits or starts.
            order: order of the job; None ignores a reservation.
        """
        if self.reserved is None or order is None:
            return self.free >= amount
        return any(free >= amount for free in self._frees(order))

    def total(self, order: Order | None = None) -> int:
        """Return how much can be taken now in several steps; `fits` is about a single one."""
        return sum(max(0, free) for free in self._frees(order)) if self.free else 0

    def never_fits(self, amount: int) -> bool:
        """Return whether the amount is more than the gate could ever give, as it is defined now."""
        return self.most < amount

    def is_short_for(self, amount: int) -> bool:
        """Return whether a request for several permits fails only because too few are free."""
        return amount > 1 and not self.shut and amount <= self.most and not self.fits(amount)

    def is_reserved_for(self, order: Order) -> bool:
        """Return whether it is reserved for the job of this order."""
        return self.reserved is not None and self.reserved.order == order

    def reserve(self, job: str, order: Order, amount: int) -> bool:
        """Reserve it for a job, unless it is reserved for a job that comes before.

        Returns:
            Whether it is reserved for this job now.
        """
        if self.reserved is None or order < self.reserved.order:
            self.reserved = Reservation(job, order, amount, 0)
        return self.reserved.job == job

    def take(self, amount: int, order: Order | None = None) -> str | None:
        """Take an amount that fits; a reservation for this job ends.

        Args:
            amount: permits or starts; must fit.
            order: order of the job; None ignores a reservation.

        Returns:
            The chosen member of a pool; None for other gates.
        """
        if order is not None and self.is_reserved_for(order):
            self.reserved = None
        if not self.members:
            self.take_many(amount, 1)
            return None
        kept = self.kept_from(order)
        nearest = self._nearest(kept) if kept else None
        if nearest:
            nearest.free -= kept
        member = choose(self.members, self.strategy, amount, self.last)
        if nearest:
            nearest.free += kept
        assert member is not None, "take() is called only after fits()"  # noqa: S101  (an invariant)
        member.used += amount
        member.free -= amount
        self.last = member.name
        self.free = max(one.free for one in self.members)
        return member.name

    def take_many(self, amount: int, times: int) -> None:
        """Take an amount several times, which must fit; not for pools."""
        if self.free != UNLIMITED:
            self.free -= amount * times

    def _frees(self, order: Order | None) -> Sequence[int]:
        """Return what is free for a job of this order, for each member or for the gate itself."""
        kept = self.kept_from(order)
        if not self.members or not self.free:
            return (self.free - kept,)
        nearest = self._nearest(kept) if kept else None
        return [one.free - (kept if one is nearest else 0) for one in self.members]

    def kept_from(self, order: Order | None) -> int:
        """Return how many permits are reserved for a job that comes before this order."""
        one = self.reserved
        return one.amount if one is not None and order is not None and order > one.order else 0

    def _nearest(self, amount: int) -> MemberView:
        """Return the pool member that is reserved: the one closest to having the amount free."""
        able = [one for one in self.members if one.capacity >= amount]
        nearest = able[0]
        for one in able:
            if one.free > nearest.free:
                nearest = one
        return nearest
