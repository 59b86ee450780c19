"""The moments at which a schedule fires, changes of the clock included; which missed ones count.

What happens when clocks change:

* A time of day (`At`, or `Cron` with an hour field that does not begin with `*`) fires once for
  each reading of the wall clock. One that is jumped over fires once, at the end of the gap, and
  several that are jumped over, or the end of the gap itself, are one fire. One that the clock
  shows twice fires the first time.
* A cron with an hour field that begins with `*` follows the running clock: it fires at each
  minute that shows a reading it names, in both passes of a fold, and there is nothing to make up
  for in a gap. So `*/15 * * * *` fires every 15 minutes of elapsed time.
* An interval (`Every`) is elapsed time and knows no clock.

The jump of a whole day (Apia, 30 December 2011) is a gap like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from enum import StrEnum
from itertools import islice, takewhile
from typing import assert_never
from zoneinfo import ZoneInfo

from headway.core.local_time import (
    DAY_MS,
    EPOCH,
    MAX_AT,
    find_zone,
    first_instant,
    parse_days,
    parse_minute,
    stretches,
    wall_clock,
    wall_ms,
)
from headway.core.timetable.schedule import At, Cron, CronExpression, Every, Schedule, read_cron


class MisfirePolicy(StrEnum):
    """Which missed fires still happen."""

    SKIP = "skip"
    """None."""
    ONCE = "once"
    """The latest one, for all."""
    ALL = "all"
    """Each one, the latest first to be kept when there are more than the cap."""


def missed(moments: Sequence[int], policy: MisfirePolicy, cap: int) -> list[int]:
    """Choose the missed fires that still happen.

    Args:
        moments: the missed fires, ms UTC, in order.
        cap: with `all`, at most so many.

    Returns:
        Some of the moments, in order.
    """
    match policy:
        case MisfirePolicy.SKIP:
            return []
        case MisfirePolicy.ONCE:
            return list(moments[-1:])
        case MisfirePolicy.ALL:
            return list(moments[max(len(moments) - max(cap, 0), 0) :])
        case _:
            assert_never(policy)


_LOOK_MS = 366 * DAY_MS
_SECOND = timedelta(seconds=1)


def fires_after(schedule: Schedule, after_at: int) -> Iterator[int]:
    """The moments at which a schedule fires, without end but that of the year 9999.

    Args:
        after_at: ms UTC; only later fires count, and none before 1970.

    Yields:
        Instants in ms UTC, each later than the one before.
    """
    if after_at >= MAX_AT:
        return
    last_at = max(after_at, -1)
    for at in _fires(schedule, last_at):
        if at > MAX_AT:
            return
        # Several readings in one gap are one moment, and one in a fold may have been before.
        if at > last_at:
            last_at = at
            yield at


def next_fires(schedule: Schedule, after_at: int, n: int) -> list[int]:
    """The next n fires later than `after_at` (ms UTC), in order; fewer only at the end of time."""
    return list(islice(fires_after(schedule, after_at), n))


def fires_between(schedule: Schedule, after_at: int, until_at: int, cap: int) -> list[int]:
    """The earliest fires of a time.

    Args:
        after_at: ms UTC, exclusive.
        until_at: ms UTC, inclusive.

    Returns:
        Instants in ms UTC, in order. When there are `cap` of them, there may be later ones.
    """
    return list(islice(_until(schedule, after_at, until_at), max(cap, 0)))


def latest_fires(schedule: Schedule, after_at: int, until_at: int, cap: int) -> list[int]:
    """The latest fires of a time, at a cost that grows with `cap` and not with the time.

    Args:
        after_at: ms UTC, exclusive.
        until_at: ms UTC, inclusive.

    Returns:
        Instants in ms UTC, in order. When there are `cap` of them, there may be earlier ones.
    """
    if cap <= 0 or until_at <= after_at:
        return []
    look_ms = cap * (schedule.interval_ms if isinstance(schedule, Every) else 60_000)
    while True:
        from_at = max(until_at - look_ms, after_at)
        found = list(_until(schedule, from_at, until_at))
        if len(found) >= cap or from_at == after_at:
            return found[-cap:]
        look_ms *= 2


def _until(schedule: Schedule, after_at: int, until_at: int) -> Iterator[int]:
    return takewhile(lambda at: at <= until_at, fires_after(schedule, after_at))


def _fires(schedule: Schedule, after_at: int) -> Iterator[int]:
    match schedule:
        case Every(interval_ms=interval_ms, anchor_at=anchor_at):
            past = max((after_at - anchor_at) // interval_ms + 1, 0)
            return iter(range(anchor_at + past * interval_ms, MAX_AT + 1, interval_ms))
        case Cron(expr=expr, tz=tz):
            expression, zone = read_cron(expr), find_zone(tz)
            if expression.follows_clock:
                return _by_running_clock(expression, zone, after_at)
            # cronsim goes by Debian, which lets a `*` in the minute field follow the clock too
            # (`*/15 2 * * *` would be lost in a gap and doubled in a fold), and gives a gap's end
            # twice where several readings lead to it. Given only wall clocks without a zone, it
            # leaves both to the rules of this module.
            walls = expression.walls_after(wall_clock(zone, after_at))
            return (first_instant(zone, wall) for wall in walls)
        case At(time=text, tz=tz, days=days):
            zone, minute = find_zone(tz), parse_minute(text)
            walls = _daily(minute, parse_days(days), wall_clock(zone, after_at).date())
            return (first_instant(zone, wall) for wall in walls)
        case _:
            assert_never(schedule)


def _by_running_clock(expression: CronExpression, zone: ZoneInfo, after_at: int) -> Iterator[int]:
    for look_at in range(after_at, MAX_AT, _LOOK_MS):
        look_end_at = look_at + _LOOK_MS
        for stretch in stretches(zone, look_at, look_end_at):
            start_at = look_at if stretch.start_at is None else stretch.start_at
            end_at = look_end_at if stretch.end_at is None else stretch.end_at
            start = EPOCH + timedelta(milliseconds=start_at + stretch.offset_ms)
            # A second back, because the stretch's own first reading counts as well.
            for wall in expression.walls_after(start - _SECOND):
                at = wall_ms(wall) - stretch.offset_ms
                if at >= end_at:
                    break
                yield at


def _daily(minute: int, days: tuple[int, ...], first: date) -> Iterator[datetime]:
    clock = time(minute // 60, minute % 60)
    for ordinal in range(first.toordinal(), date.max.toordinal() + 1):
        day = date.fromordinal(ordinal)
        if day.weekday() in days:
            yield datetime.combine(day, clock)
