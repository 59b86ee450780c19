"""The rules of the airports, as gates, and what is done with a flight that is let go.

A flight starts when its moment has come, its runway is free, one of its airport's four gate agents
is free, and its aircraft is here. The agent sees it off; then it is handed over to the sky, and
keeps its aircraft until that has landed back home.
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
"""An aircraft without a signal for so long (by the wall clock) is given up."""


def declare_departures(app: hw.App, speed: float, pace: Pace | None = None) -> None:
    """Declares the gates and kinds of a day of departures, and the importer of its rows.

    Args:
        app: where to.
        speed: seconds of the day in one second of the run.
        pace: when the day opens; if not given, what the environment says when it is imported.
    """
    runway = hw.Rate("runway:{origin}", 1, per=RUNWAY_EVERY / speed, shared=True)
    agents = hw.Pool("agents:{origin}", AGENTS, shared=True).take(hold="run")
    its_aircraft = hw.Slots("aircraft:{aircraft}", 1)

    @app.job(lane="landings")
    async def land(job: hw.Job, flight: str) -> None:
        """The aircraft is back, so the flight that took it is over."""
        await app.signal_async(flight, event=f"{job.id} landed", final="succeeded")

    async def let_go(
        job: hw.Job,
        flight: str,
        origin: str,
        aircraft: str | None,
        air_time_min: int | None,
        **plan: str,
    ) -> None:
        """An agent sees the flight off; from then on it awaits its aircraft's landing."""
        del flight, origin, aircraft, plan  # they name its gates and stand on its record
        await asyncio.sleep(SEEING_OFF / timedelta(seconds=1) / speed)
        gone = away(air_time_min or 0) / speed
        job.then(land.make(flight=job.ref, due=datetime.now(UTC) + gone))
        await job.hand_over(timeout=gone + OVERDUE)

    kind = partial(app.job, lane="departures", subject="{flight}")
    depart = kind(name="depart", gates=[runway, agents, its_aircraft])(let_go)
    # With no aircraft assigned there is none to wait for.
    unassigned = kind(name="depart_unassigned", gates=[runway, agents])(let_go)

    @app.importer("departures")
    def departures(row: object) -> Iterator[hw.NewJob | hw.CalledOff]:
        nonlocal pace
        flight = read_flight(row)
        pace = pace or pace_from(flight.moment, speed)
        which = unassigned if flight.aircraft is None else depart
        job = which.make(**asdict(flight), due=pace.moment(flight.moment), key=flight.identity)
        yield hw.CalledOff(job, "the flight was cancelled") if flight.cancelled else job


app = hw.App()
declare_departures(app, speed_from())
