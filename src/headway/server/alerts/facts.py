"""Facts: what rules look at."""

from __future__ import annotations

from dataclasses import dataclass

from headway.core.errors import HeadwayError
from headway.runtime.latency import LaneLatency
from headway.server.overview import Overview


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What is known at one look.

    Attributes:
        at: when, in ms on a clock that never goes back; only differences mean anything.
        overview: what the store looks like; None if it does not answer, or is another's to watch.
        latencies: of lanes with a target; none without an overview.
        away_ms: for how long the store has not answered; 0 if it does.
        fault: why it does not.
        leads: whether this server is the one that alerts, or was when the store last answered.
    """

    at: int
    overview: Overview | None = None
    latencies: tuple[LaneLatency, ...] = ()
    away_ms: int = 0
    fault: HeadwayError | None = None
    leads: bool = True
