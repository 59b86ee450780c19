"""Schedules as text: `cron: 0 9 * * 1-5`, `every 30m`, `at 09:00 mon-fri`."""

from __future__ import annotations

import re
from typing import assert_never

from headway.core.duration import format_duration, parse_duration
from headway.core.errors import InvalidValue
from headway.core.timetable.schedule import At, Cron, Every, Schedule

_FORM = re.compile(r"\s*(cron|every|at)(?:\s*:\s*|\s+)(\S.*)", re.IGNORECASE | re.DOTALL)


def parse_schedule(text: str, *, tz: str = "UTC", anchor_at: int = 0) -> Schedule:
    """Read a schedule.

    Args:
        text: "cron: 0 9 * * 1-5", "every 30m", "at 09:00" or "at 09:00 mon-fri"; the colon may
            stand after each of the three words or be left out.
        tz: the IANA zone of a cron or a time of day.
        anchor_at: the first fire of an interval, ms UTC.

    Returns:
        The schedule.

    Raises:
        InvalidValue: it is none of these, or a part of it is not understood.
    """
    match = _FORM.fullmatch(text)
    if not match:
        message = f"the schedule {text[:60]!r} is not understood"
        raise InvalidValue(message, hint='write "cron: 0 9 * * 1-5", "every 30m" or "at 09:00"')
    body = match[2].strip()
    match match[1].lower():
        case "cron":
            return Cron(body, tz=tz)
        case "every":
            return Every(parse_duration(body), anchor_at=anchor_at)
        case _:
            clock, _, days = body.partition(" ")
            return At(clock, tz=tz, days=days.strip() or "daily")


def format_schedule(schedule: Schedule) -> str:
    """Write a schedule so that `parse_schedule` reads it again, given its zone or anchor."""
    match schedule:
        case Cron(expr=expr):
            return f"cron: {expr}"
        case Every(interval_ms=interval_ms):
            return f"every {format_duration(interval_ms, parts=6)}"
        case At(time=time, days=days):
            return f"at {time}" if days == "daily" else f"at {time} {days}"
        case _:
            assert_never(schedule)
