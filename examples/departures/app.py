"""The rules of the airports, as gates, and the handler of a departing flight.

A flight starts when it is due, its runway is free, one of its airport's four gate agents is free,
and its aircraft is there. The agent sees it off; then its job is handed over, and keeps the
aircraft until that has landed back home.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import partial

import headway as hw
from examples.departures.flight import away, read_flight
from examples.departures.pace import Pace, pace_from, speed_from

RUNWAY_EVERY = timedelta(seconds=75)
AGENTS = ("1", "2", "3", "4")
SEEING_OFF = timedelta(minutes=5)
OVERDUE = timedelta(hours=24)
"""Time (of the wall clock) after which an aircraft without a signal is given up."""


def declare_departures(app: hw.App, speed: float, pace: Pace | None = None) -> None:
    """Declare the gates and kinds of a day of departures, and the importer of its rows.

    Args:
        app: The app.
        speed: Seconds of the day per second of the run.
        pace: The pace of the day; by default read from the environment at the first import.
    """
    runway = hw.Rate("runway:{origin}", 1, per=RUNWAY_EVERY / speed, shared=True)
    agents = hw.Pool("agents:{origin}", AGENTS, shared=True).take(hold="run")
    its_aircraft = hw.Slots("aircraft:{aircraft}", 1)

    @app.job(lane="landings")
    async def land(job: hw.Job, flight: str) -> None:
        """Signal the end of the flight, because its aircraft is back."""
        await app.signal_async(flight, event=f"{job.id} landed", final="succeeded")

    async def let_go(
        job: hw.Job,
        flight: str,
        origin: str,
        aircraft: str | None,
        air_time_min: int | None,
        **plan: str,
    ) -> None:
        """See the flight off, and hand it over until its aircraft has landed."""
        del flight, origin, aircraft, plan  # used by its gates, and recorded
        await asyncio.sleep(SEEING_OFF / timedelta(seconds=1) / speed)
        gone = away(air_time_min or 0) / speed
        job.then(land.make(flight=job.ref, due=datetime.now(UTC) + gone))
        await job.hand_over(timeout=gone + OVERDUE)

    kind = partial(app.job, lane="departures", subject="{flight}")
    depart = kind(name="depart", gates=[runway, agents, its_aircraft])(let_go)
    # A flight without an assigned aircraft has none to wait for.
    unassigned = kind(name="depart_unassigned", gates=[runway, agents])(let_go)

    @app.importer("departures")
    def departures(row: object) -> Iterator[hw.NewJob | hw.CancelledJob]:
        nonlocal pace
        flight = read_flight(row)
        pace = pace or pace_from(flight.moment, speed)
        which = unassigned if flight.aircraft is None else depart
        job = which.make(**asdict(flight), due=pace.moment(flight.moment), key=flight.identity)
        yield hw.CancelledJob(job, "the flight was cancelled") if flight.cancelled else job


app = hw.App()
declare_departures(app, speed_from())
