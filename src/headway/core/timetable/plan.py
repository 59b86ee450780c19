"""The plan of a timetable: when entries fire, which tick meets every fire, and what others miss.

A schedule with a constant period fires at some offsets in each period, both in elapsed time and
counted from 1970 UTC. A dispatcher that checks only at multiples of a tick meets every fire if and
only if the tick divides every period *and every offset*. A tick that is the greatest common divisor
of the periods alone misses fires: `0 * * * *` and `20 * * * *` both have a period of 60 minutes,
and a tick of 60 minutes meets half of their fires; it must be 20.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from math import gcd, lcm
from typing import assert_never

from headway.core.local_time import (
    DAY_MINUTES,
    DAY_MS,
    find_zone,
    parse_days,
    parse_minute,
    stretches,
)
from headway.core.timetable.fires import fires_after, fires_between, next_fires
from headway.core.timetable.schedule import At, Cron, Every, Schedule, read_cron

MINUTE_MS = 60_000
"""The tick that meets every wall-clock time: since 1972, offsets are whole minutes."""

_FORESIGHT_MS = 50 * 366 * DAY_MS


@dataclass(frozen=True, kw_only=True, slots=True)
class Rhythm:
    """A constant period in elapsed time.

    Attributes:
        period_ms: shortest time after which the fires repeat.
        offsets_ms: offsets of the fires in each period, counted from 1970 UTC, in order.
    """

    period_ms: int
    offsets_ms: tuple[int, ...]


def rhythm(schedule: Schedule, *, since_at: int = 0) -> Rhythm | None:
    """Return the constant period of a schedule, if it has one.

    Args:
        since_at: ms UTC; earlier clock changes are ignored.

    Returns:
        None if the schedule skips months, dates or weekdays, or if clock changes of the zone in the
        50 years from `since_at` break the period. In a zone without clock changes, a time of day
        has a period of a day; in one that changes by whole hours, `*/15 * * * *` keeps its period.
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
    """Return the longest tick whose multiples, counted from 1970 UTC, meet every fire.

    Args:
        since_at: ms UTC; earlier fires and clock changes are ignored.

    Returns:
        Milliseconds: the greatest common divisor of all periods and offsets, with 1 minute for
        each schedule that has no constant period; 1 minute if there are no schedules.
    """
    tick = 0
    for schedule in schedules:
        found = rhythm(schedule, since_at=since_at)
        tick = gcd(tick, found.period_ms, *found.offsets_ms) if found else gcd(tick, MINUTE_MS)
    return tick or MINUTE_MS


def cycle_ms(schedules: Iterable[Schedule], *, since_at: int = 0) -> int | None:
    """Return the time after which a whole timetable repeats.

    Args:
        since_at: ms UTC; earlier clock changes are ignored.

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
    # A jump by whole periods does not affect a schedule that follows the clock. A time of day is
    # made up for in a gap and skipped in a fold, which moves a fire whatever the period.
    phases = {shift % period_ms for shift in shifts} if follows_clock else shifts
    if len(phases) > 1:
        return None
    shift = phases.pop()
    offsets = {(minute * MINUTE_MS - shift) % period_ms for minute in minutes}
    return Rhythm(period_ms=period_ms, offsets_ms=tuple(sorted(offsets)))


LONGEST_WINDOW_MS = 7 * DAY_MS
"""Fires are counted over a cycle, or over a week if the cycle is longer or there is none."""
MOST_FIRES = 50_000


@dataclass(frozen=True, kw_only=True, slots=True)
class EntryPlan:
    """When one entry fires.

    Attributes:
        period_ms: constant period; None if there is none.
        offsets_ms: offsets of the fires in each period, counted from 1970 UTC.
        next: next fires, ms UTC.
    """

    name: str
    period_ms: int | None
    offsets_ms: tuple[int, ...]
    next: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Meets:
    """How many fires a dispatcher meets that checks only at multiples of a tick.

    Attributes:
        tick_ms: tick, counted from 1970 UTC.
        met: number of fires at a multiple of the tick.
        missed: number of fires between two multiples.
    """

    tick_ms: int
    met: int
    missed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The whole timetable.

    Attributes:
        tick_ms: the longest tick that meets every fire.
        cycle_ms: time after which everything repeats: the least common multiple of the periods;
            None if a schedule has no constant period.
        counted_ms: length of the time over which the fires below were counted.
        by_tick: fires met with `tick_ms`; none is missed.
        by_periods: fires met with the greatest common divisor of the periods alone, without their
            offsets; None if no schedule has a constant period.
        by_cycle: fires met with the least common multiple of the periods; None if there is none.
    """

    entries: tuple[EntryPlan, ...]
    tick_ms: int
    cycle_ms: int | None
    counted_ms: int
    by_tick: Meets
    by_periods: Meets | None
    by_cycle: Meets | None


def make_plan(schedules: Mapping[str, Schedule], now: int, *, fires: int = 5) -> Plan:
    """Plan a timetable.

    Args:
        schedules: schedules of the enabled entries, by id.
        fires: number of next fires to list for each entry.
    """
    each = list(schedules.values())
    rhythms = {name: rhythm(one, since_at=now) for name, one in schedules.items()}
    periods = [one.period_ms for one in rhythms.values() if one]
    tick, cycle = tick_ms(each, since_at=now), cycle_ms(each, since_at=now)
    window_ms = min(cycle or LONGEST_WINDOW_MS, LONGEST_WINDOW_MS)
    moments = _moments(each, now, now + window_ms)
    return Plan(
        entries=tuple(
            EntryPlan(
                name=name,
                period_ms=found.period_ms if found else None,
                offsets_ms=found.offsets_ms if found else (),
                next=tuple(next_fires(schedules[name], now, fires)),
            )
            for name, found in rhythms.items()
        ),
        tick_ms=tick,
        cycle_ms=cycle,
        counted_ms=window_ms,
        by_tick=_met(moments, tick),
        by_periods=_met(moments, gcd(*periods)) if periods else None,
        by_cycle=_met(moments, lcm(*periods)) if cycle else None,
    )


def next_fire(schedules: Iterable[Schedule], now: int) -> int | None:
    """Return the next time at which any of these schedules fires, ms UTC; None if none does."""
    return next(merge(*(fires_after(one, now) for one in schedules)), None)


def _moments(schedules: Sequence[Schedule], after_at: int, until_at: int) -> list[int]:
    most = MOST_FIRES // max(len(schedules), 1)
    return [at for one in schedules for at in fires_between(one, after_at, until_at, most)]


def _met(moments: Sequence[int], tick: int) -> Meets:
    met = sum(at % tick == 0 for at in moments)
    return Meets(tick_ms=tick, met=met, missed=len(moments) - met)
