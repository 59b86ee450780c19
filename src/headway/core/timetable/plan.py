"""The plan: when everything fires, how often a dispatcher must look, and what others miss."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from math import gcd, lcm

from headway.core.timetable.fires import fires_after, fires_between, next_fires
from headway.core.timetable.rhythm import cycle_ms, rhythm, tick_ms
from headway.core.timetable.schedule import Schedule
from headway.core.zone import DAY_MS

LONGEST_LOOK_MS = 7 * DAY_MS
"""What is counted is counted over a cycle, and over a week if that is longer or there is none."""
MOST_FIRES = 50_000


@dataclass(frozen=True, kw_only=True, slots=True)
class EntryPlan:
    """When one entry fires.

    Attributes:
        name: whose.
        period_ms: its constant period; None if it has none.
        offsets_ms: where in each period it fires, counted from 1970 UTC.
        next: its next fires, ms UTC.
    """

    name: str
    period_ms: int | None
    offsets_ms: tuple[int, ...]
    next: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Meets:
    """How many fires a dispatcher meets that looks only at multiples of a tick.

    Attributes:
        tick_ms: the tick, counted from 1970 UTC.
        met: fires at such a moment.
        missed: fires between two of them.
    """

    tick_ms: int
    met: int
    missed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The whole timetable.

    Attributes:
        entries: by name.
        tick_ms: the longest tick that meets every fire.
        cycle_ms: after which everything repeats: the least common multiple of the periods; None
            if a schedule has no constant period.
        counted_ms: over what time the fires below were counted.
        by_tick: with that tick: none is missed.
        by_periods: with the greatest common divisor of the periods alone, without their offsets;
            None without a constant period.
        by_cycle: with the least common multiple of the periods; None if there is none.
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
        schedules: of the entries that are enabled, by id.
        now: ms UTC.
        fires: how many of the next fires of each entry are listed.
    """
    each = list(schedules.values())
    rhythms = {name: rhythm(one, since_at=now) for name, one in schedules.items()}
    periods = [one.period_ms for one in rhythms.values() if one]
    tick, cycle = tick_ms(each, since_at=now), cycle_ms(each, since_at=now)
    look_ms = min(cycle or LONGEST_LOOK_MS, LONGEST_LOOK_MS)
    moments = _moments(each, now, now + look_ms)
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
        counted_ms=look_ms,
        by_tick=_met(moments, tick),
        by_periods=_met(moments, gcd(*periods)) if periods else None,
        by_cycle=_met(moments, lcm(*periods)) if cycle else None,
    )


def next_fire(schedules: Iterable[Schedule], now: int) -> int | None:
    """The next moment at which any of these schedules fires, ms UTC."""
    return next(merge(*(fires_after(one, now) for one in schedules)), None)


def _moments(schedules: Sequence[Schedule], after_at: int, until_at: int) -> list[int]:
    most = MOST_FIRES // max(len(schedules), 1)
    return [at for one in schedules for at in fires_between(one, after_at, until_at, most)]


def _met(moments: Sequence[int], tick: int) -> Meets:
    met = sum(at % tick == 0 for at in moments)
    return Meets(tick_ms=tick, met=met, missed=len(moments) - met)
