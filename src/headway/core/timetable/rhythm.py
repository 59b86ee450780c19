"""Rhythm: how often to look so that no fire is missed, and when a timetable repeats.

A schedule with a constant period fires at some offsets in each period, both in elapsed time and
counted from 1970 UTC. A dispatcher that looks only at multiples of a tick meets every fire if and
only if the tick divides every period *and every offset*. Ticking at the greatest common divisor
of the periods alone misses fires: `0 * * * *` and `20 * * * *` both have a period of 60 minutes,
and a tick of 60 minutes meets half of their fires; it has to be 20.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import gcd, lcm
from typing import assert_never

from headway.core.local_time import DAY_MINUTES, parse_days, parse_minute
from headway.core.timetable.cron_expression import read_cron
from headway.core.timetable.schedule import At, Cron, Every, Schedule
from headway.core.zone import DAY_MS, find_zone, stretches

MINUTE_MS = 60_000
"""The tick that meets every reading of a wall clock: offsets are whole minutes since 1972."""

_FORESIGHT_MS = 50 * 366 * DAY_MS


@dataclass(frozen=True, kw_only=True, slots=True)
class Rhythm:
    """A constant period in elapsed time.

    Attributes:
        period_ms: the shortest time after which the fires repeat.
        offsets_ms: where in each period they are, counted from 1970 UTC, in order.
    """

    period_ms: int
    offsets_ms: tuple[int, ...]


def rhythm(schedule: Schedule, *, since_at: int = 0) -> Rhythm | None:
    """The constant period of a schedule, if it has one.

    Args:
        schedule: any of the three.
        since_at: ms UTC; changes of the clock before it do not count.

    Returns:
        None if months, dates or weekdays are left out, or if changes of the zone's clock in the
        50 years from `since_at` break it. In a zone that never changes, a time of day has a
        period of a day; one that changes by whole hours leaves `*/15 * * * *` its period.
    """
    match schedule:
        case Every(interval_ms=interval_ms, anchor_at=anchor_at):
            return Rhythm(period_ms=interval_ms, offsets_ms=(anchor_at % interval_ms,))
        case Cron(expr=expr, tz=tz):
            cron = read_cron(expr)
            if not cron.every_day:
                return None
            return _on_clock(cron.minutes, tz, since_at, follows_clock=cron.follows_clock)
        case At(time=time, tz=tz, days=days):
            if len(parse_days(days)) < 7:
                return None
            return _on_clock((parse_minute(time),), tz, since_at, follows_clock=False)
        case _:
            assert_never(schedule)


def tick_ms(schedules: Iterable[Schedule], *, since_at: int = 0) -> int:
    """The longest tick that serves a timetable.

    Args:
        schedules: the entries' schedules.
        since_at: ms UTC; fires and changes of the clock before it do not count.

    Returns:
        Milliseconds: the greatest common divisor of all periods and offsets, with 1 minute for
        each schedule that has no constant period; 1 minute for no schedules. Looking at its
        multiples, counted from 1970 UTC, meets every fire.
    """
    tick = 0
    for schedule in schedules:
        found = rhythm(schedule, since_at=since_at)
        tick = gcd(tick, found.period_ms, *found.offsets_ms) if found else gcd(tick, MINUTE_MS)
    return tick or MINUTE_MS


def cycle_ms(schedules: Iterable[Schedule], *, since_at: int = 0) -> int | None:
    """The time after which a whole timetable repeats.

    Args:
        schedules: the entries' schedules.
        since_at: ms UTC; changes of the clock before it do not count.

    Returns:
        Milliseconds: the least common multiple of all periods; None if there are no schedules or
        one has no constant period.
    """
    found = [rhythm(schedule, since_at=since_at) for schedule in schedules]
    periods = [each.period_ms for each in found if each]
    return lcm(*periods) if found and len(periods) == len(found) else None


def _on_clock(
    minutes: tuple[int, ...], tz: str, since_at: int, *, follows_clock: bool
) -> Rhythm | None:
    named = set(minutes)
    period = next(
        step
        for step in range(1, DAY_MINUTES + 1)
        if DAY_MINUTES % step == 0
        and all((minute + step) % DAY_MINUTES in named for minute in named)
    )
    period_ms = period * MINUTE_MS
    ahead = stretches(find_zone(tz), since_at, since_at + _FORESIGHT_MS)
    shifts = {stretch.offset_ms for stretch in ahead}
    # A running clock that jumps by whole periods goes on as if it had not; a time of day is made
    # up for in a gap and left out in a fold, which moves a fire whatever the period.
    phases = {shift % period_ms for shift in shifts} if follows_clock else shifts
    if len(phases) > 1:
        return None
    shift = phases.pop()
    offsets = {(minute * MINUTE_MS - shift) % period_ms for minute in minutes}
    return Rhythm(period_ms=period_ms, offsets_ms=tuple(sorted(offsets)))
