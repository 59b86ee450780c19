"""The three schedules that an entry of the timetable can have."""

from __future__ import annotations

from dataclasses import dataclass, field

from headway.core.duration import MAX_DURATION_MS, format_duration
from headway.core.errors import InvalidValue
from headway.core.local_time import DAY_MINUTES, parse_days, parse_minute
from headway.core.timetable.cron_expression import read_cron
from headway.core.zone import MAX_AT, find_zone

MIN_INTERVAL_MS = 1_000
"""The shortest interval; what has to be faster is a loop, not a timetable."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cron:
    """Fires by a cron expression on the wall clock of a zone.

    Attributes:
        expr: five fields, as "0 9 * * mon-fri".
        tz: an IANA zone.

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
    """Fires at a fixed interval of elapsed time, whatever clocks show.

    Attributes:
        interval_ms: from 1 second to 100 years.
        anchor_at: the first fire, ms UTC; all others follow at multiples of the interval.

    Raises:
        InvalidValue: the interval or the anchor is out of its range.
    """

    interval_ms: int = field(kw_only=False)
    anchor_at: int = 0

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            InvalidValue: one is out of its range.
        """
        _whole("an interval in milliseconds", self.interval_ms)
        _whole("an anchor in milliseconds", self.anchor_at)
        if not MIN_INTERVAL_MS <= self.interval_ms <= MAX_DURATION_MS:
            message = f"the interval {format_duration(self.interval_ms, parts=6)} cannot be kept"
            raise InvalidValue(message, hint="from 1s to 36525d")
        if not 0 <= self.anchor_at <= MAX_AT:
            message = f"the anchor {self.anchor_at} ms lies outside the years 1970 to 9999"
            raise InvalidValue(message, hint="give milliseconds since 1970 UTC")


@dataclass(frozen=True, kw_only=True, slots=True)
class At:
    """Fires once on each of some days, when the wall clock of a zone shows a time.

    Attributes:
        time: the time of day, from "00:00" to "23:59".
        tz: an IANA zone.
        days: weekdays as "mon-fri", or "daily".

    Raises:
        InvalidValue: the time or the days are not understood, or the zone is unknown.
    """

    time: str = field(kw_only=False)
    tz: str = "UTC"
    days: str = "daily"

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            InvalidValue: the time is 24:00, or one is not understood.
        """
        _text("a time of day", self.time)
        if parse_minute(self.time) == DAY_MINUTES:
            message = f"the time {self.time!r} belongs to the next day"
            raise InvalidValue(message, hint='write "00:00" and the days on which it is')
        parse_days(self.days)
        find_zone(self.tz)


Schedule = Cron | Every | At


def _text(what: str, value: object) -> None:
    if not isinstance(value, str):
        message = f"{what} must be text, not {type(value).__name__}"
        raise InvalidValue(message)


def _whole(what: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        message = f"{what} must be a whole number, not {type(value).__name__}"
        raise InvalidValue(message)
