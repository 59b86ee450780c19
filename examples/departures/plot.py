"""A plot of the day: starts, queue and lateness at each airport, hour by hour."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from math import floor
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator

from examples.departures.history import Departure, by_airport, queue_steps

HOUR = timedelta(hours=1)
A_RUNWAY_AN_HOUR = 48


def plot_day(departures: Sequence[Departure], path: Path, title: str) -> None:
    """Plot the day to a file.

    Args:
        departures: All departures of the day, at least one.
        path: The file to write; its ending selects the format: .png, .svg or .pdf.
        title: Title of the plot.
    """
    midnight = departures[0].due_at.replace(hour=0, minute=0, second=0, microsecond=0)
    figure = Figure(figsize=(11, 9), layout="constrained")
    figure.suptitle(title)
    starts, queue, late = figure.subplots(3, 1, sharex=True)
    for place, (airport, flights) in enumerate(by_airport(departures).items()):
        colour = f"C{place}"
        _plot_starts(starts, flights, midnight, airport, colour)
        steps = queue_steps(flights)
        hours = [_hours(at, midnight) for at, _ in steps]
        queue.step(hours, [n for _, n in steps], where="post", color=colour, label=airport)
        left = [each for each in flights if each.started_at is not None]
        due = [_hours(each.due_at, midnight) for each in left]
        minutes = [each.late / timedelta(minutes=1) for each in left]
        late.scatter(due, minutes, s=9, color=colour, label=airport)
    starts.axhline(A_RUNWAY_AN_HOUR, color="black", linestyle=":", label="all a runway can do")
    starts.set_ylabel("starts in the hour")
    queue.set_ylabel("due, not yet let go")
    late.set_ylabel("minutes late")
    late.set_xlabel("hour of the day; below, by the scheduled moment")
    late.xaxis.set_major_locator(MultipleLocator(2))
    late.xaxis.set_major_formatter(lambda hour, _: f"{int(hour) % 24:02}:00")
    for axes in (starts, queue, late):
        axes.grid(alpha=0.3)
        axes.legend(loc="upper right")
    figure.savefig(path)


def _plot_starts(
    axes: Axes, flights: Sequence[Departure], midnight: datetime, airport: str, colour: str
) -> None:
    hours = [_hours(each.started_at, midnight) for each in flights if each.started_at is not None]
    counts: dict[int, int] = {}
    for hour in hours:
        counts[floor(hour)] = counts.get(floor(hour), 0) + 1
    span = range(min(counts, default=0), max(counts, default=0) + 2)
    heights = [counts.get(hour, 0) for hour in span]
    axes.step(span, heights, where="post", color=colour, label=airport)


def _hours(at: datetime, midnight: datetime) -> float:
    return (at - midnight) / HOUR
