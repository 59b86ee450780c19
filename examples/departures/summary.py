"""The day in one table: the flights and delays of each airport."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from rich.box import SIMPLE_HEAD
from rich.table import Table

from examples.departures.history import Departure, by_airport, queue_steps

RUNWAY = timedelta(seconds=75)
HOUR = timedelta(hours=1)
HEADINGS = (
    "flights",
    "cancelled",
    "left",
    "mean\nlate",
    "max\nlate",
    "max\nqueue",
    "runway\nuse",
    "busiest\nhour",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class AirportDay:
    """One airport's day.

    Attributes:
        airport: Code of the airport.
        flights: Number of flights, including cancelled ones.
        cancelled: Number of cancelled flights.
        left: Number of flights that departed.
        mean_late: Mean lateness of departed flights.
        max_late: Maximum lateness of departed flights.
        max_queue: Maximum number of flights that were due and had not departed.
        runway_use: Share of the time between first and last start that the runway was in use.
        busiest_hour: Maximum number of starts in any hour; a runway's limit is 48.
    """

    airport: str
    flights: int
    cancelled: int
    left: int
    mean_late: timedelta
    max_late: timedelta
    max_queue: int
    runway_use: float
    busiest_hour: int


def airport_day(airport: str, departures: Sequence[Departure]) -> AirportDay:
    """Summarize the flights of one airport."""
    left = [each for each in departures if each.started_at is not None]
    starts = sorted(each.started_at for each in left if each.started_at is not None)
    late = [each.late for each in left]
    return AirportDay(
        airport=airport,
        flights=len(departures),
        cancelled=sum(each.cancelled for each in departures),
        left=len(left),
        mean_late=sum(late, timedelta()) / max(1, len(late)),
        max_late=max(late, default=timedelta()),
        max_queue=max((waiting for _, waiting in queue_steps(left)), default=0),
        runway_use=len(starts) * RUNWAY / (starts[-1] - starts[0] + RUNWAY) if starts else 0.0,
        busiest_hour=max((_starts_within_hour(starts, at) for at in starts), default=0),
    )


def summary_table(departures: Sequence[Departure], speed: float) -> Table:
    """Return the table of the day, with a row for each airport and one for all.

    Args:
        departures: All departures of the day.
        speed: Seconds of the day per second of the run, for the title.
    """
    table = Table(
        title=f"The day, in its own time (it was run {speed:g} times as fast)",
        caption=f"late in minutes; a runway can do {HOUR // RUNWAY} starts an hour",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("airport", no_wrap=True)
    for heading in HEADINGS:
        table.add_column(heading, justify="right", no_wrap=True)
    days = [airport_day(*pair) for pair in by_airport(departures).items()]
    for day in days:
        table.add_row(*_counts(day), f"{day.runway_use:.0%}", str(day.busiest_hour))
    table.add_section()
    # Queues and runways are separate, so they have no total.
    table.add_row(*_counts(airport_day("all", departures))[:-1], "", "", "")
    return table


def _counts(day: AirportDay) -> tuple[str, ...]:
    counts = (day.flights, day.cancelled, day.left)
    late = (_minutes(day.mean_late), _minutes(day.max_late))
    return (day.airport, *map(str, counts), *late, str(day.max_queue))


def _minutes(span: timedelta) -> str:
    return f"{span / timedelta(minutes=1):.1f}"


def _starts_within_hour(starts: Sequence[datetime], first: datetime) -> int:
    return bisect_left(starts, first + HOUR) - bisect_left(starts, first)
