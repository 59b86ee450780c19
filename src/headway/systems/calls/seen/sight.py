"""The sight: what the rules of calls look at."""

from __future__ import annotations

from dataclasses import dataclass

from headway.contract.store import Store
from headway.contract.views import LaneView, WorkerView
from headway.server.alerts.facts import Facts
from headway.server.overview import Overview
from headway.systems.calls.seen.backlog import LANE, Backlog, look_at_backlog
from headway.systems.calls.seen.dials import Dials, look_at_dials
from headway.systems.calls.seen.lines import LinePool, look_at_lines
from headway.systems.calls.seen.tally import Event, Tally
from headway.systems.directory.tally import Totals


@dataclass(frozen=True, kw_only=True, slots=True)
class Sight:
    """What is known of calls at one look.

    Attributes:
        at: when, in ms on a clock that never goes back; only differences mean anything.
        now: the store's time, ms UTC.
        backlog: leads that are due and wait.
        pools: of numbers.
        dials: of the last minutes.
        workers: that serve the lane of calls, also those lost within an hour.
        totals: what was counted.
    """

    at: int
    now: int
    backlog: Backlog
    pools: tuple[LinePool, ...]
    dials: Dials
    workers: tuple[WorkerView, ...]
    totals: Totals

    def labels(self, event: Event) -> dict[str, int]:
        """How often an event happened, by label."""
        return {label: times for (one, label), times in self.totals.items() if one == event}


async def look_at_calls(store: Store, tally: Tally, facts: Facts) -> Sight | None:
    """Looks at calls; some ten bounded reads and at most one for each of 32 flows.

    Args:
        store: where leads are jobs.
        tally: what was counted besides.
        facts: of the same look.

    Returns:
        None where the store does not answer, or is another server's to watch.

    Raises:
        StoreError: the store or the directory cannot tell now.
    """
    if facts.overview is None:
        return None
    overview = facts.overview
    now = overview.stats.now
    return Sight(
        at=facts.at,
        now=now,
        backlog=await look_at_backlog(store, lane_of(overview)),
        pools=await look_at_lines(store),
        dials=await look_at_dials(store, now),
        workers=workers_of(overview),
        totals=await tally.totals(),
    )


def lane_of(overview: Overview) -> LaneView | None:
    """The lane of calls; None if there was no lead yet."""
    return next((one for one in overview.lanes if one.name == LANE), None)


def workers_of(overview: Overview) -> tuple[WorkerView, ...]:
    """The workers that serve the lane of calls, also those lost within an hour."""
    return tuple(worker for worker in overview.workers if LANE in worker.lanes)
