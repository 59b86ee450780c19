"""Time zones: conversion between wall clocks and instants.

An IANA zone is a list of stretches, each with one constant offset from UTC. When one ends, its wall
clock jumps forward (the times jumped over are a *gap*: they never occur) or backward (the times
passed again are a *fold*: they occur twice). All rules of local time in Headway use these two
terms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from headway.core.errors import InvalidValue

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  (a wall clock has no zone)
DAY_MS = 86_400_000
MAX_AT = 253_402_300_799_999
"""The last instant that is handled: the end of the year 9999, UTC."""

# Local time must not leave datetime's years; no offset is as long as a day.
_LAST_SCAN_AT = MAX_AT - 2 * DAY_MS
_FIRST_SCAN_AT = -2 * DAY_MS
_YEAR_MS = 366 * DAY_MS
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """A time in which a zone keeps one offset.

    Attributes:
        start_at: its first instant; None if it lies before the time that was asked for.
        end_at: the first instant after it; None if it lies beyond the time that was asked for.
        offset_ms: what the wall clock shows less UTC.
    """

    start_at: int | None
    end_at: int | None
    offset_ms: int


def find_zone(name: object) -> ZoneInfo:
    """Find an IANA zone by its name.

    Args:
        name: such as "Europe/Berlin"; upper and lower case count.

    Returns:
        The zone, the same object for the same name.

    Raises:
        InvalidValue: there is none of that name; the hint has near names.
    """
    if not isinstance(name, str):
        message = f"a time zone must be text, not {type(name).__name__}"
        raise InvalidValue(message, hint='an IANA name such as "Europe/Berlin"')
    try:
        return _zone(name)
    except (KeyError, ValueError, OSError):
        message = f"there is no time zone {name[:80]!r}"
        raise InvalidValue(message, hint=_near(name)) from None


@lru_cache(maxsize=1024)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


def offset_ms(zone: ZoneInfo, at: int) -> int:
    """What the zone's wall clock shows at the instant, less UTC, in milliseconds."""
    near = min(max(at, _FIRST_SCAN_AT), _LAST_SCAN_AT)
    offset = datetime.fromtimestamp(near // 1000, UTC).astimezone(zone).utcoffset()
    return 0 if offset is None else offset // _MILLISECOND


def wall_clock(zone: ZoneInfo, at: int) -> datetime:
    """What the zone's wall clock shows at the instant, as a datetime without a zone."""
    return EPOCH + timedelta(milliseconds=at + offset_ms(zone, at))


def wall_ms(wall: datetime) -> int:
    """A wall clock's reading as milliseconds since its own 1970; less the offset, the instant."""
    return (wall - EPOCH) // _MILLISECOND


def first_instant(zone: ZoneInfo, wall: datetime) -> int:
    """The one instant that stands for a reading of the wall clock.

    Args:
        zone: whose clock.
        wall: a datetime without a zone.

    Returns:
        The instant at which the clock shows it; in a fold the first of the two; in a gap the
        end of the gap, which is the first instant after the jump.
    """
    local = at = wall_ms(wall)
    for stretch in stretches(zone, local - DAY_MS, local + DAY_MS):
        at = local - stretch.offset_ms
        if stretch.start_at is not None:
            at = max(at, stretch.start_at)
        if stretch.end_at is None or at < stretch.end_at:
            break
    return at


def stretches(zone: ZoneInfo, start_at: int, end_at: int) -> Iterator[Stretch]:
    """The stretches of constant offset that [start_at, end_at) meets, in order.

    Args:
        zone: which zone.
        start_at: the first instant of interest.
        end_at: the first instant of no interest.

    Yields:
        Stretches that leave no instant out. The first has no start and the last no end.
    """
    start: int | None = None
    offset = offset_ms(zone, start_at)
    for change_at, changed_ms in _changes(zone, start_at, end_at):
        yield Stretch(start_at=start, end_at=change_at, offset_ms=offset)
        start, offset = change_at, changed_ms
    yield Stretch(start_at=start, end_at=None, offset_ms=offset)


def _changes(zone: ZoneInfo, start_at: int, end_at: int) -> Iterator[tuple[int, int]]:
    for block in range(start_at // _YEAR_MS, (end_at - 1) // _YEAR_MS + 1):
        for change in _changes_in(zone, block):
            if start_at < change[0] < end_at:
                yield change


@lru_cache(maxsize=8192)
def _changes_in(zone: ZoneInfo, block: int) -> tuple[tuple[int, int], ...]:
    """The instants in (start, end] of a block of 366 days that begin a new offset, and it.

    Looks once a day. Since 1970 no zone has changed twice within 6 days (the nearest two are 167
    hours apart), so no pair can hide between two looks.
    """
    found: list[tuple[int, int]] = []
    start_at = max(block * _YEAR_MS, _FIRST_SCAN_AT)
    before = offset_ms(zone, start_at)
    for low_at in range(start_at, min((block + 1) * _YEAR_MS, _LAST_SCAN_AT), DAY_MS):
        after = offset_ms(zone, low_at + DAY_MS)
        if after != before:
            found.append((_change_at(zone, low_at, low_at + DAY_MS, before), after))
            before = after
    return tuple(found)


def _change_at(zone: ZoneInfo, low_at: int, high_at: int, before: int) -> int:
    while high_at - low_at > 1000:
        middle_at = (low_at + high_at) // 2000 * 1000
        if offset_ms(zone, middle_at) == before:
            low_at = middle_at
        else:
            high_at = middle_at
    return high_at


def _near(name: str) -> str:
    """A hint with the zones whose name or city is spelled most like this."""
    exact = {zone.lower(): zone for zone in sorted(available_timezones())}
    cities = {lower.rsplit("/", 1)[-1]: zone for lower, zone in exact.items()}
    text = name[:80].lower().replace(" ", "_")
    whole = [exact[near] for near in get_close_matches(text, exact, n=2)]
    city = [cities[near] for near in get_close_matches(text.rsplit("/", 1)[-1], cities, n=2)]
    names = dict.fromkeys([*city, *whole])
    return f"did you mean {' or '.join(names)}?" if names else 'IANA names are as "Europe/Berlin"'
