"""The times at which a schedule fires, including clock changes, and which missed fires count.

When clocks change:

* A time of day (`At`, or `Cron` with an hour field that does not start with `*`) fires once for
  each wall-clock time. A time that is jumped over fires at the end of the gap; several of them, and
  the end of the gap itself, are one fire. A time that occurs twice fires the first time.
* A cron with an hour field that starts with `*` follows the running clock: it fires at each minute
  that matches, in both passes of a fold, and makes up for nothing in a gap. So `*/15 * * * *` fires
  every 15 minutes of elapsed time.
* An interval (`Every`) counts elapsed time, regardless of clocks.

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
    """Only the latest one."""
    ALL = "all"
    """All, or only the latest ones if there are more than the cap."""


MISSED_AFTER_MS = 60_000
"""A fire that starts to wait later than this counts as missed."""


DROPPED = "the entry changed"
"""The reason of fires that a change of their entry cancelled; its next revision has them again."""
REVISIONS = 8
"""Number of earlier revisions of an entry whose fires are looked up, to repeat none of them."""


def missed(moments: Sequence[int], policy: MisfirePolicy, cap: int) -> list[int]:
    """Return the missed fires that still happen, in order.

    Args:
        moments: the missed fires, ms UTC, in order.
        cap: maximum number of fires with `all`.
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


_WINDOW_MS = 366 * DAY_MS
_SECOND = timedelta(seconds=1)


def fires_after(schedule: Schedule, after_at: int) -> Iterator[int]:
    """Yield the times at which a schedule fires, up to the year 9999.

    Args:
        after_at: ms UTC; only later fires are yielded, and none before 1970.

    Yields:
        Instants in ms UTC, strictly increasing.
    """
    if after_at >= MAX_AT:
        return
    last_at = max(after_at, -1)
    for at in _fires(schedule, last_at):
        if at > MAX_AT:
            return
        # Several times in one gap are one instant, and a time in a fold may be in the past.
        if at > last_at:
            last_at = at
            yield at


def next_fires(schedule: Schedule, after_at: int, n: int) -> list[int]:
    """Return the next n fires after `after_at` (ms UTC), in order; fewer if no more exist."""
    return list(islice(fires_after(schedule, after_at), n))


def fires_between(schedule: Schedule, after_at: int, until_at: int, cap: int) -> list[int]:
    """Return the first `cap` fires in a range.

    Args:
        after_at: ms UTC, exclusive.
        until_at: ms UTC, inclusive.

    Returns:
        Instants in ms UTC, in order. If there are `cap` of them, there may be later ones.
    """
    return list(islice(_until(schedule, after_at, until_at), max(cap, 0)))


def latest_fires(schedule: Schedule, after_at: int, until_at: int, cap: int) -> list[int]:
    """Return the last `cap` fires in a range, at a cost that grows with `cap`, not with the range.

    Args:
        after_at: ms UTC, exclusive.
        until_at: ms UTC, inclusive.

    Returns:
        Instants in ms UTC, in order. If there are `cap` of them, there may be earlier ones.
    """
    if cap <= 0 or until_at <= after_at:
        return []
    window_ms = cap * (schedule.interval_ms if isinstance(schedule, Every) else 60_000)
    while True:
        from_at = max(until_at - window_ms, after_at)
        found = list(_until(schedule, from_at, until_at))
        if len(found) >= cap or from_at == after_at:
            return found[-cap:]
        window_ms *= 2


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
            # Like Debian, cronsim lets a `*` in the minute field follow the clock too (`*/15 2 * *
            # *` would be lost in a gap and doubled in a fold), and returns the end of a gap once
            # for each time that leads to it. It is given wall clocks without a zone, so that the
            # rules of this module apply instead.
            walls = expression.walls_after(wall_clock(zone, after_at))
            return (first_instant(zone, wall) for wall in walls)
        case At(time=text, tz=tz, days=days):
            zone, minute = find_zone(tz), parse_minute(text)
            walls = _daily(minute, parse_days(days), wall_clock(zone, after_at).date())
            return (first_instant(zone, wall) for wall in walls)
        case _:
            assert_never(schedule)


def _by_running_clock(expression: CronExpression, zone: ZoneInfo, after_at: int) -> Iterator[int]:
    for window_at in range(after_at, MAX_AT, _WINDOW_MS):
        window_end_at = window_at + _WINDOW_MS
        for stretch in stretches(zone, window_at, window_end_at):
            start_at = window_at if stretch.start_at is None else stretch.start_at
            end_at = window_end_at if stretch.end_at is None else stretch.end_at
            start = EPOCH + timedelta(milliseconds=start_at + stretch.offset_ms)
            # Start a second earlier, because the first time of the stretch counts too.
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
