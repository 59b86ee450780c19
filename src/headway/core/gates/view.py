"""A gate as one claim sees it: how much room it has now, and the permits taken meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field

from headway.core.gates.pool import choose
from headway.core.gates.slots import UNLIMITED
from headway.core.gates.spec import GateKind, Strategy


@dataclass(slots=True, kw_only=True)
class MemberView:
    """One member of a pool, in this claim.

    Attributes:
        name: the member's name.
        capacity: its permits.
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
        name: its resolved name.
        kind: None for an implicit gate that is only open or closed.
        most: the largest amount it could ever give at once.
        free: the largest amount it can give now.
        shut: it is closed, or outside its hours, and not merely full.
        opens_at: when it opens by itself, if it is closed and that is known.
        members: of a pool, in its order.
        strategy: of a pool.
        last: the member chosen last, of a pool.
        counted: of a rate, the starts in the window when it was looked at.
    """

    name: str
    kind: GateKind | None
    most: int = UNLIMITED
    free: int = UNLIMITED
    shut: bool = False
    opens_at: int | None = None
    members: list[MemberView] = field(default_factory=list[MemberView])
    strategy: Strategy = "least_used"
    last: str = ""
    counted: int = 0

    def fits(self, amount: int) -> bool:
        """Whether the amount can be taken now."""
        return self.free >= amount

    @property
    def total(self) -> int:
        """What it can give now, in several takings; `free` is what it can give in one."""
        return sum(one.free for one in self.members) if self.free and self.members else self.free

    def never_fits(self, amount: int) -> bool:
        """Whether the amount is more than the gate could ever give, as it is defined now."""
        return self.most < amount

    def take(self, amount: int) -> str | None:
        """Takes an amount that fits.

        Args:
            amount: permits or starts; must fit.

        Returns:
            The member chosen, of a pool; else None.
        """
        if self.kind is not GateKind.POOL:
            self.take_many(amount, 1)
            return None
        member = choose(self.members, self.strategy, amount, self.last)
        assert member is not None, "take() is called only after fits()"  # noqa: S101  (an invariant)
        member.used += amount
        member.free -= amount
        self.last = member.name
        self.free = max(one.free for one in self.members)
        return member.name

    def take_many(self, amount: int, times: int) -> None:
        """Takes an amount that fits several times over; not of a pool."""
        if self.free != UNLIMITED:
            self.free -= amount * times
