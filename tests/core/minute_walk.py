"""A walk through every minute of a period, for oracles: slow and plain, using only zoneinfo."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

MINUTE_MS = 60_000


class Minute(NamedTuple):
    """One minute of elapsed time, and what the wall clock shows at its start."""

    at: int
    wall: datetime
    day: date
    minute: int


@lru_cache(maxsize=16)
def walk(zone: str, start: datetime, minutes: int) -> tuple[Minute, ...]:
    info = ZoneInfo(zone)
    moment = start.astimezone(UTC)
    found: list[Minute] = []
    for _ in range(minutes):
        wall = moment.astimezone(info).replace(tzinfo=None, fold=0)
        at = int(moment.timestamp()) * 1000
        found.append(Minute(at, wall, wall.date(), wall.hour * 60 + wall.minute))
        moment += timedelta(minutes=1)
    return tuple(found)


def clock_changes(zone: str, first_year: int, last_year: int) -> list[datetime]:
    """Return the midnights (UTC) at the start of the days in which the zone's offset changes."""
    info = ZoneInfo(zone)
    day = datetime(first_year, 1, 1, tzinfo=UTC)
    found: list[datetime] = []
    while day.year <= last_year:
        following = day + timedelta(days=1)
        if day.astimezone(info).utcoffset() != following.astimezone(info).utcoffset():
            found.append(day)
        day = following
    return found


def days_round(change: datetime, days: int) -> tuple[datetime, int]:
    """Return the start and the number of minutes of a walk with this many days on each side."""
    return change - timedelta(days=days), (2 * days + 1) * 1440
