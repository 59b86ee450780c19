"""The three kinds of schedules of a timetable entry, and their text form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import assert_never

from cronsim import CronSim, CronSimError

from headway.core.duration import MAX_DURATION_MS, format_duration, parse_duration
from headway.core.errors import InvalidValue
from headway.core.local_time import (
    DAY_MINUTES,
    MAX_AT,
    WEEKDAYS,
    find_zone,
    parse_days,
    parse_minute,
)

_FIELDS = ("minute", "hour", "day of the month", "month", "weekday")
_MAX_LENGTH = 256
_HINT = 'five fields: minute hour day month weekday, as "*/15 9-17 * * mon-fri"'
_SINCE_1970 = "pass milliseconds since 1970 UTC"
_NEVER = "the given month never has this day"
_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NUMBERS = {
    **{name: number for number, name in enumerate(_MONTHS, start=1)},
    **{name: (number + 1) % 7 for number, name in enumerate(WEEKDAYS)},
}
_STEPPED_RANGE = re.compile(r"([a-z]+|[0-9]+)-([a-z]+|[0-9]+)/0*[1-9][0-9]*", re.IGNORECASE)
# A leap year before those of most jobs. Every expression that ever fires does so within 40 years of
# any start (29 February on one weekday, across 2100).
_PROBE = datetime(2000, 1, 1)  # noqa: DTZ001  (a wall clock has no zone)


@dataclass(frozen=True, kw_only=True, slots=True)
class CronExpression:
    """A parsed cron expression.

    Attributes:
        text: its five fields, in cronsim's syntax.
        follows_clock: whether the hour field starts with `*`. Such an expression fires at each
            minute that matches; any other one fires once for each wall-clock time.
        every_day: whether no date is skipped.
        minutes: matching minutes of a day, from 0 to 1439, in order.
    """

    text: str
    follows_clock: bool
    every_day: bool
    minutes: tuple[int, ...]

    def walls_after(self, wall: datetime) -> Iterator[datetime]:
        """Yield the matching wall-clock times after this one, up to the end of datetime's years."""
        readings = CronSim(self.text, wall)
        while True:
            try:
                reading = next(readings, None)
            except (OverflowError, ValueError):
                return
            if reading is None:
                return
            yield reading


@lru_cache(maxsize=4096)
def read_cron(text: str) -> CronExpression:
    """Parse a cron expression with the rules of Debian's cron.

    If neither day field starts with `*`, a date that matches either one counts. Beyond Debian's
    syntax, `L` (last day), `LW` (last weekday), `5L`, `5#2`, `@daily` and similar are supported,
    and `5/20` means from 5 to the end of the field (`5-5/20` is only 5). Weekdays are 0 to 7, where
    0 and 7 are Sunday, so `1/3` is Monday, Thursday and Sunday.

    Args:
        text: the five fields; case-insensitive.

    Raises:
        InvalidValue: the text is not a cron expression, or never fires, as on 30 February.
    """
    fields = _MACROS.get(text.strip().lower(), text).split()
    if len(text) > _MAX_LENGTH or len(fields) != len(_FIELDS):
        message = f"the cron expression {text[:60]!r} does not have five fields"
        raise InvalidValue(message, hint=_HINT)
    fields = [",".join(map(_without_idle_step, field.split(","))) for field in fields]
    cleaned = " ".join(fields)
    try:
        readings = CronSim(cleaned, _PROBE)
    except CronSimError as error:
        message = f"the cron expression {text[:60]!r} is not understood: {error}"
        raise InvalidValue(message, hint=_hint(fields)) from None
    if next(readings, None) is None:
        message = f"the cron expression {text[:60]!r} never fires"
        raise InvalidValue(message, hint=_NEVER)
    return CronExpression(
        text=cleaned,
        follows_clock=fields[1].startswith("*"),
        every_day=_every_day(readings),
        minutes=tuple(sorted(hour * 60 + m for hour in readings.hours for m in readings.minutes)),
    )


def _without_idle_step(term: str) -> str:
    """Drop the step of a one-value range: cronsim parses `a-a/n` as `a/n`, to the field's end."""
    match = _STEPPED_RANGE.fullmatch(term)
    if match is None:
        return term
    first, last = (
        int(end) if end.isdigit() else _NUMBERS.get(end.lower()) for end in match.groups()
    )
    return match[1] if first is not None and first == last else term


def _hint(fields: list[str]) -> str:
    """Distinguish a date that never occurs from an invalid field: cronsim calls both a bad day."""
    minute, hour, day, month, weekday = fields
    try:
        CronSim(f"{minute} {hour} {day} * {weekday}", _PROBE)
        CronSim(f"0 0 1 {month} *", _PROBE)
    except CronSimError:
        return _HINT
    return _NEVER


def _every_day(sim: CronSim) -> bool:
    dates = len(sim.days) == 31 and CronSim.LAST not in sim.days
    weekdays = {day % 7 for day in sim.weekdays if isinstance(day, int)} == set(range(7))
    days = dates and weekdays if sim.day_and else dates or weekdays
    return days and len(sim.months) == 12


MIN_INTERVAL_MS = 1_000
"""Minimum interval; faster work needs a loop, not a timetable."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cron:
    """Fires by a cron expression on the wall clock of a zone.

    Attributes:
        expr: five fields, such as "0 9 * * mon-fri".
        tz: IANA time zone.

    Raises:
        InvalidValue: the expression is not understood or never fires, or the zone is unknown.
    """

    expr: str = field(kw_only=False)
    tz: str = "UTC"

    def __post_init__(self) -> None:
        """Check the fields."""
        _text("a cron expression", self.expr)
        read_cron(self.expr)
        find_zone(self.tz)


@dataclass(frozen=True, kw_only=True, slots=True)
class Every:
    """Fires at a fixed interval of elapsed time, regardless of clock changes.

    Attributes:
        interval_ms: length of the interval, from 1 second to 100 years.
        anchor_at: first fire, ms UTC; all others follow at multiples of the interval.

    Raises:
        InvalidValue: the interval or the anchor is out of range.
    """

    interval_ms: int = field(kw_only=False)
    anchor_at: int = 0

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            InvalidValue: a field is out of range.
        """
        hint = 'pass milliseconds, as Every(1_800_000), or use the schedule "every 30m"'
        _whole("an interval", self.interval_ms, hint)
        _whole("an anchor", self.anchor_at, _SINCE_1970)
        if not MIN_INTERVAL_MS <= self.interval_ms <= MAX_DURATION_MS:
            message = f"the interval {format_duration(self.interval_ms, parts=6)} is out of range"
            raise InvalidValue(message, hint="from 1s to 36525d")
        if not 0 <= self.anchor_at <= MAX_AT:
            message = f"the anchor {self.anchor_at} ms is outside the years 1970 to 9999"
            raise InvalidValue(message, hint=_SINCE_1970)


@dataclass(frozen=True, kw_only=True, slots=True)
class At:
    """Fires once a day, on given weekdays, at a wall-clock time of a zone.

    Attributes:
        time: time of day, from "00:00" to "23:59".
        tz: IANA time zone.
        days: weekdays, such as "mon-fri", or "daily".

    Raises:
        InvalidValue: the time or the days are not understood, or the zone is unknown.
    """

    time: str = field(kw_only=False)
    tz: str = "UTC"
    days: str = "daily"

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            InvalidValue: the time is 24:00, or a field is not valid.
        """
        _text("a time of day", self.time)
        if self.time.strip() == "24:00":
            message = f"the time {self.time!r} belongs to the next day"
            raise InvalidValue(message, hint='write "00:00", with the days on which it falls')
        parse_minute(self.time, last=DAY_MINUTES - 1)
        parse_days(self.days)
        find_zone(self.tz)


Schedule = Cron | Every | At


def _text(what: str, value: object) -> None:
    if not isinstance(value, str):
        message = f"{what} must be text, not {type(value).__name__}"
        raise InvalidValue(message)


def _whole(what: str, value: object, hint: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        message = f"{what} must be a whole number of milliseconds, not {value!r:.40}"
        raise InvalidValue(message, hint=hint)


_FORM = re.compile(r"\s*(cron|every|at)(?:\s*:\s*|\s+)(\S.*)", re.IGNORECASE | re.DOTALL)


def parse_schedule(text: str, *, tz: str = "UTC", anchor_at: int = 0) -> Schedule:
    """Parse a schedule.

    Args:
        text: "cron: 0 9 * * 1-5", "every 30m", "at 09:00" or "at 09:00 mon-fri"; the colon is
            optional after all three words.
        tz: IANA time zone of a cron or a time of day. It must be valid even for an interval, which
            does not use it, because a mistake would only show up after an edit.
        anchor_at: first fire of an interval, ms UTC.

    Raises:
        InvalidValue: the text is none of these, or a part of it is not valid.
    """
    match = _FORM.fullmatch(text)
    if not match:
        message = f"the schedule {text[:60]!r} is not understood"
        raise InvalidValue(message, hint='write "cron: 0 9 * * 1-5", "every 30m" or "at 09:00"')
    find_zone(tz)
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
    """Format a schedule; `parse_schedule` is the inverse, given its zone or anchor."""
    match schedule:
        case Cron(expr=expr):
            return f"cron: {expr}"
        case Every(interval_ms=interval_ms):
            return f"every {format_duration(interval_ms, parts=6)}"
        case At(time=time, days=days):
            return f"at {time}" if days == "daily" else f"at {time} {days}"
        case _:
            assert_never(schedule)
