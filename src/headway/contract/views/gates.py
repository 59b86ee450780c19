"""Views of gates."""

from __future__ import annotations

from dataclasses import dataclass

from headway.contract.views.query import Page, Query
from headway.core.gates.spec import GateSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class HolderView:
    """A permit: a row that names its holder."""

    gate: str
    job: str
    run: int
    member: str
    amount: int
    since: int


@dataclass(frozen=True, kw_only=True, slots=True)
class GateState:
    """A gate as it stands.

    Attributes:
        name: resolved, or the template's where no instance is meant.
        kind: slots, rate, hours, pool; "implicit" for one that is only open or closed.
        shared: jobs wait for it in their flows.
        template: under which it is declared; None for an implicit one.
        capacity: permits, or the limit of a rate; None for unlimited or where it has none.
        per_ms: of a rate.
        used: permits out, or starts in the window.
        free: what could be taken now; None for unlimited.
        open: whether one permit could be taken now.
        opens_at: when it opens by itself, if it is shut and that is known.
        closed_until: of a closing; None for none; a moment of the year 9999 or later is for good.
        closed_by: who closed it.
        closed_reason: why.
        overridden: an operator's value holds.
        reserved: of what is free or becomes free, how much is kept for one job that needs so much.
        reserved_for: that job.
        holders: the first ten, oldest first.
        holder_count: all of them.
        parked: jobs parked at it, exact to 1000.
        members: of a pool.
        horizon_at: of an Hours: known up to here; past it, closed.
    """

    name: str
    kind: str
    shared: bool
    template: str | None
    capacity: int | None
    per_ms: int | None
    used: int
    free: int | None
    open: bool
    opens_at: int | None
    closed_until: int | None
    closed_by: str
    closed_reason: str
    overridden: bool
    reserved: int = 0
    reserved_for: str | None = None
    holders: tuple[HolderView, ...] = ()
    holder_count: int = 0
    parked: int = 0
    members: tuple[GateState, ...] = ()
    horizon_at: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class GatesQuery(Query[Page[GateState]]):
    """Gates that are declared, capped, closed, or held; by name.

    Attributes:
        names: only these.
        parked: only those with parked jobs; a page costs as much as the gates that it returns.
        cursor: of the page before.
    """

    names: tuple[str, ...] | None = None
    parked: bool = False
    cursor: str | None = None
    limit: int = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class SpecsQuery(Query[tuple[GateSpec, ...]]):
    """The gates as they are declared, an operator's values applied."""
