"""The rows that a ledger keeps of gates. Verbs change them in place and save them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from headway.core.gates.spec import GateSpec, Hold
from headway.core.gates.view import Reservation

FOREVER = 253_402_300_800_000
"""The end of the year 9999: what is closed until then is closed for good."""
MOST_LANES = 64
"""Lanes that a shut gate remembers by name."""
ANY_LANE = ""
"""In place of the names of more lanes; no lane has an empty name."""


@dataclass(slots=True, kw_only=True)
class GateRow:
    """A gate's instance: made when there is something to remember of it.

    Attributes:
        name: resolved; of a pool's member `pool/member`.
        template: under which it is declared; "" for an implicit gate.
        pool: of a member, its pool's name; else "".
        used: permits out, or starts in the window as of the last trim: a cache.
        capacity: an operator's value for this instance (a rate's limit too); None for none.
        closed_until: of a closing; None for none, FOREVER for good.
        closed_by: who closed it.
        closed_reason: why.
        last: of a pool, the member chosen last.
        timer_at: when a keyed gate must be looked at because it opens by itself.
        lanes: of a shared gate, lanes whose claims found it shut since it had room last: they are
            woken, and forgotten, when it has room again. At most MOST_LANES, else ANY_LANE alone.
        zone: of an Hours.
        opens: of an Hours, absolute open intervals, sorted.
        horizon_at: of an Hours: known up to here.
        reserved: for whom it is reserved, or was until the reservation ended; None for nobody.
    """

    name: str
    template: str
    pool: str = ""
    used: int = 0
    capacity: int | None = None
    closed_until: int | None = None
    closed_by: str = ""
    closed_reason: str = ""
    last: str = ""
    timer_at: int | None = None
    lanes: tuple[str, ...] = ()
    zone: str | None = None
    opens: tuple[tuple[int, int], ...] = ()
    horizon_at: int | None = None
    reserved: Reservation | None = None

    def idle(self) -> bool:
        """Whether nothing would be forgotten with the row."""
        return (
            self.used == 0
            and self.capacity is None
            and self.closed_until is None
            and self.timer_at is None
            and self.horizon_at is None
            and not self.last
            and not self.lanes
            and self.reserved is None
        )

    def turn_away(self, lane: str) -> tuple[str, ...]:
        """Return the lanes to wake when the gate has room, with one more."""
        if lane in self.lanes or ANY_LANE in self.lanes:
            return self.lanes
        return (*self.lanes, lane) if len(self.lanes) < MOST_LANES else (ANY_LANE,)

    def clone(self) -> GateRow:
        """A row of the same values, to be changed apart."""
        return replace(self)


@dataclass(slots=True, kw_only=True)
class TemplateRow:
    """A gate as it is declared, and what an operator made of it.

    Attributes:
        spec: what code says.
        override: an operator's version; None for none.
    """

    spec: GateSpec
    override: GateSpec | None = None

    @property
    def current(self) -> GateSpec:
        """What holds now."""
        return self.override or self.spec


class PermitRow(NamedTuple):
    """A permit; its holder is (job, run).

    Attributes:
        gate: what it is a permit of; of a pool, the member's gate.
        job: the holder.
        run: the holder's run.
        pool: the pool's name; else "".
        amount: permits.
        since: when it was taken.
        hold: how long it is kept.
    """

    gate: str
    job: str
    run: int
    pool: str
    amount: int
    since: int
    hold: Hold
