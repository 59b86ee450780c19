"""A gate as one claim sees it: how much room it has now, and the permits taken meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headway.core.gates.pool import choose
from headway.core.gates.slots import UNLIMITED
from headway.core.gates.spec import GateKind, Strategy

RESERVED_MS = 60_000
"""How long a gate is reserved after a claim last found that the job cannot start yet."""


class Order(NamedTuple):
    """The order of start within a flow."""

    priority: int
    due_at: int
    seq: int


class Reservation(NamedTuple):
    """What becomes free at a gate is kept for a job that asks for more than there is now.

    Attributes:
        job: for which.
        order: its priority, due time and arrival; jobs that come before it may take all the same.
        amount: what it asks for.
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
        name: the member's name.
        used: its permits out, those of this claim included.
        free: its permits that can be taken; none while the member is closed.
    """

    name: str
    capacity: int
    used: int
    free: int


@dataclass(slots=True, kw_only=True)
class GateView:
    """One gate, in this claim.

    Attributes:
        template: under which it is declared; "" for an implicit gate.
        kind: None for an implicit gate that is only open or closed.
        most: the largest amount it could ever give at once.
        free: the largest amount it can give now.
        shut: it is closed, or outside its hours, and not merely full.
        opens_at: when it opens by itself, if it is closed and that is known.
        members: of a pool, in its order.
        strategy: of a pool.
        last: the member chosen last, of a pool.
        counted: of a rate, the starts in the window when it was looked at.
        reserved: the job it is reserved for.
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
            order: of the job that asks; None asks as if nothing were reserved.
        """
        if self.reserved is None or order is None:
            return self.free >= amount
        return any(free >= amount for free in self._frees(order))

    def total(self, order: Order | None = None) -> int:
        """What it can give now, in several takings; `fits` is about one."""
        return sum(max(0, free) for free in self._frees(order)) if self.free else 0

    def never_fits(self, amount: int) -> bool:
        """Return whether the amount is more than the gate could ever give, as it is defined now."""
        return self.most < amount

    def is_short_for(self, amount: int) -> bool:
        """Return whether all that is missing are more permits, for a job that asks for several."""
        return amount > 1 and not self.shut and amount <= self.most and not self.fits(amount)

    def is_reserved_for(self, order: Order) -> bool:
        """Return whether it is reserved for the job of this order."""
        return self.reserved is not None and self.reserved.order == order

    def reserve(self, job: str, order: Order, amount: int) -> bool:
        """Reserve it for a job for which it is short, unless a job that comes before has it.

        Returns:
            Whether it is reserved for this job now.
        """
        if self.reserved is None or order < self.reserved.order:
            self.reserved = Reservation(job, order, amount, 0)
        return self.reserved.job == job

    def take(self, amount: int, order: Order | None = None) -> str | None:
        """Take an amount that fits; a reservation for the job that takes it is over.

        Args:
            amount: permits or starts; must fit.

        Returns:
            The member chosen, of a pool; else None.
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
        """Take an amount that fits several times over; not of a pool."""
        if self.free != UNLIMITED:
            self.free -= amount * times

    def _frees(self, order: Order | None) -> Sequence[int]:
        """What is free for a job of this order: of each member, or of the gate itself."""
        kept = self.kept_from(order)
        if not self.members or not self.free:
            return (self.free - kept,)
        nearest = self._nearest(kept) if kept else None
        return [one.free - (kept if one is nearest else 0) for one in self.members]

    def kept_from(self, order: Order | None) -> int:
        """Permits that are kept from a job of this order for one that comes before it."""
        one = self.reserved
        return one.amount if one is not None and order is not None and order > one.order else 0

    def _nearest(self, amount: int) -> MemberView:
        """The member of a pool that will first have an amount, and is kept for it."""
        able = [one for one in self.members if one.capacity >= amount]
        return max(able, key=lambda one: one.free)
