"""The history of each flight, read from the export, in the time of the day."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

FLIGHT_KINDS = frozenset({"depart", "depart_unassigned"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Departure:
    """One flight of the day.

    Attributes:
        flight: Carrier and number.
        origin: Airport of departure.
        due_at: Scheduled time of the day.
        started_at: Time of the day at which it departed; None if it did not.
        cancelled: Whether it was cancelled.
    """

    flight: str
    origin: str
    due_at: datetime
    started_at: datetime | None
    cancelled: bool

    @property
    def late(self) -> timedelta:
        """How long after its scheduled time it departed; zero if it did not."""
        return timedelta() if self.started_at is None else self.started_at - self.due_at


def read_departures(lines: Iterable[str], speed: float) -> list[Departure]:
    """Return the flights of an export, by scheduled time.

    Args:
        lines: The output of `headway export`; other kinds are ignored.
        speed: Seconds of the day per second of the run.
    """
    jobs = (json.loads(line) for line in lines if line.strip())
    found = [_departure(job, speed) for job in jobs if job.get("kind") in FLIGHT_KINDS]
    return sorted(found, key=lambda each: (each.due_at, each.flight))


def queue_steps(departures: Iterable[Departure]) -> list[tuple[datetime, int]]:
    """Return how many flights were due and had not departed, over the day.

    Args:
        departures: Flights of one airport.

    Returns:
        Times with the number from then on, in order.
    """
    started = [(each.due_at, each.started_at) for each in departures if each.started_at]
    changes = sorted([(due, 1) for due, _ in started] + [(start, -1) for _, start in started])
    steps: list[tuple[datetime, int]] = []
    waiting = 0
    for at, change in changes:
        waiting += change
        if steps and steps[-1][0] == at:
            steps.pop()
        steps.append((at, waiting))
    return steps


def by_airport(departures: Iterable[Departure]) -> dict[str, list[Departure]]:
    """Return the flights by airport: airports by name, flights in the given order."""
    found: dict[str, list[Departure]] = {}
    for each in departures:
        found.setdefault(each.origin, []).append(each)
    return dict(sorted(found.items()))


def _departure(job: dict[str, Any], speed: float) -> Departure:
    plan = job["args"]
    due_at = datetime.fromisoformat(plan["due_at"])
    # If a flight had several runs, the first has the planned time, and the last the departure.
    runs = job["runs"]
    starts = [run["claimed_at"] for run in runs if run["handed_at"] is not None]
    late_ms = (starts[-1] - runs[0]["due_at"]) * speed if starts else None
    return Departure(
        flight=plan["flight"],
        origin=plan["origin"],
        due_at=due_at,
        started_at=None if late_ms is None else due_at + timedelta(milliseconds=late_ms),
        cancelled=job["state"] == "cancelled",
    )
