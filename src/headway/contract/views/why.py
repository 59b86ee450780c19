"""Why a job is not running."""

from __future__ import annotations

from dataclasses import dataclass

from headway.contract.views.gates import GateState
from headway.contract.views.query import Query
from headway.core.state import State


@dataclass(frozen=True, kw_only=True, slots=True)
class WhyView:
    """Why a job stands where it stands.

    Attributes:
        id: the job.
        state: as stored.
        shown: as shown.
        sentence: all of it in one sentence.
        closed: every gate that is closed for it, in the order it asks for them.
        never_fits: gates that could never give what it asks, as they are defined now.
        place: its place in its flow from 1, exact to 1000; None if it waits in none.
        workers: live workers that serve its lane.
        now: the store's time.
        next_at: when the next thing that is known happens: due, opening, deadline, lease end.
    """

    id: str
    state: State
    shown: str
    sentence: str
    closed: tuple[GateState, ...]
    never_fits: tuple[str, ...]
    place: int | None
    workers: int
    now: int
    next_at: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class WhyQuery(Query[WhyView | None]):
    """Why a job is not running; bounded cost at any size."""

    id: str
