"""Local time: times of day and weekdays as text, and conversion between wall clocks and instants.

An IANA zone is a sequence of stretches, each with a constant offset from UTC. At the end of one,
the wall clock jumps forward (the times jumped over are a *gap*: they never occur) or backward (the
times passed again are a *fold*: they occur twice). All rules of local time in Headway use these two
terms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from headway.core.errors import InvalidValue

DAY_MINUTES = 1440
EVERY_DAY = (0, 1, 2, 3, 4, 5, 6)
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
"""Names of the weekdays 0 to 6, as `date.weekday` numbers them."""

_LONG = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NUMBER = {name: number for names in (WEEKDAYS, _LONG) for number, name in enumerate(names)}
_CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{2})")
_DAYS_HINT = 'write days as "mon-fri", "mon,wed,sat-sun" or "daily"'


def parse_minute(text: str, *, last: int = DAY_MINUTES) -> int:
    """Parse a time of day, such as "09:00".

    Args:
        text: hours and minutes, from "00:00" to "24:00".
        last: the last minute that is allowed; 1439 excludes "24:00".

    Returns:
        Minutes since midnight, 0 to 1440.

    Raises:
        InvalidValue: the text is not a time of day.
    """
    match = _CLOCK.fullmatch(text.strip())
    minute = int(match[1]) * 60 + int(match[2]) if match else -1
    if not match or minute > last or int(match[2]) > 59:
        message = f"{text[:60]!r} is not a time of day"
        raise InvalidValue(
            message, hint=f'write it as "09:00", from 00:00 to {format_minute(last)}'
        )
    return minute


def format_minute(minute: int) -> str:
    """Format minutes since midnight as "09:00"; minutes above 1440 as a time of the next day."""
    if minute > DAY_MINUTES:
        minute -= DAY_MINUTES
    return f"{minute // 60:02}:{minute % 60:02}"


def parse_days(text: object) -> tuple[int, ...]:
    """Parse weekdays, such as "mon-fri".

    Args:
        text: "daily", or names (the first three letters or the whole name) and ranges of names,
            separated by commas; a range may cross the end of the week ("fri-mon").

    Returns:
        Numbers from 0 for Monday to 6 for Sunday, each once, in ascending order.

    Raises:
        InvalidValue: the value is not such a text.
    """
    if not isinstance(text, str):
        message = f"days must be text, not {type(text).__name__}"
        raise InvalidValue(message, hint=_DAYS_HINT)
    words = text.strip().lower()
    if words == "daily":
        return EVERY_DAY
    days: set[int] = set()
    for word in words.split(","):
        first, dash, last = (part.strip() for part in word.partition("-"))
        start = _weekday(first, text)
        length = (_weekday(last, text) - start) % 7 if dash else 0
        days.update((start + step) % 7 for step in range(length + 1))
    return tuple(sorted(days))


def format_days(days: tuple[int, ...]) -> str:
    """Format ascending weekdays as "mon-fri,sun"; `parse_days` is the inverse."""
    if days == EVERY_DAY:
        return "daily"
    runs: list[list[int]] = []
    for day in days:
        if runs and runs[-1][-1] == day - 1:
            runs[-1].append(day)
        else:
            runs.append([day])
    return ",".join(
        "-".join(dict.fromkeys(WEEKDAYS[end] for end in (run[0], run[-1]))) for run in runs
    )


def _weekday(name: str, text: str) -> int:
    if name not in _NUMBER:
        message = f"{name[:20]!r} in the days {text[:60]!r} is not a weekday"
        raise InvalidValue(message, hint=_DAYS_HINT)
    return _NUMBER[name]


EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  (a wall clock has no zone)
DAY_MS = 86_400_000
MAX_AT = 253_402_300_799_999
"""The last supported instant: the end of the year 9999, UTC."""

# Local time must stay within datetime's years; no offset is as long as a day.
_LAST_SCAN_AT = MAX_AT - 2 * DAY_MS
_FIRST_SCAN_AT = -2 * DAY_MS
_YEAR_MS = 366 * DAY_MS
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """A period in which a zone keeps one offset.

    Attributes:
        start_at: its first instant; None if it is before the requested range.
        end_at: the first instant after it; None if it is after the requested range.
        offset_ms: wall clock minus UTC.
    """

    start_at: int | None
    end_at: int | None
    offset_ms: int


def find_zone(name: object) -> ZoneInfo:
    """Return the IANA zone with this name.

    Args:
        name: such as "Europe/Berlin"; case-sensitive.

    Returns:
        The zone; the same object for the same name.

    Raises:
        InvalidValue: there is no such zone; the hint suggests similar names.
    """
    if not isinstance(name, str):
        message = f"a time zone must be text, not {type(name).__name__}"
        raise InvalidValue(message, hint='an IANA name such as "Europe/Berlin"')
    try:
        return _zone(name)
    except (KeyError, ValueError, OSError):
        message = f"there is no time zone {name[:80]!r}"
        raise InvalidValue(message, hint=_near(name)) from None


# The zone directory also contains files that are not zones, and copies with leap seconds.
_NOT_ZONES = frozenset(("Factory", "localtime", "posix", "posixrules", "right"))


@lru_cache(maxsize=1024)
def _zone(name: str) -> ZoneInfo:
    if name.partition("/")[0] in _NOT_ZONES:
        raise KeyError(name)
    return ZoneInfo(name)


def offset_ms(zone: ZoneInfo, at: int) -> int:
    """Return the zone's wall clock minus UTC at an instant, in milliseconds."""
    near = min(max(at, _FIRST_SCAN_AT), _LAST_SCAN_AT)
    offset = datetime.fromtimestamp(near // 1000, UTC).astimezone(zone).utcoffset()
    return 0 if offset is None else offset // _MILLISECOND


def wall_clock(zone: ZoneInfo, at: int) -> datetime:
    """Return the zone's wall clock at an instant, as a datetime without a zone."""
    return EPOCH + timedelta(milliseconds=at + offset_ms(zone, at))


def wall_ms(wall: datetime) -> int:
    """Return milliseconds since 1970 on the wall clock; minus the offset, this is the instant."""
    return (wall - EPOCH) // _MILLISECOND


def first_instant(zone: ZoneInfo, wall: datetime) -> int:
    """Return the instant for a wall-clock time.

    Args:
        wall: a datetime without a zone.

    Returns:
        The instant at which the clock shows it. In a fold, the first of the two; in a gap, the
        first instant after the jump.
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
    """Yield the stretches of constant offset that overlap [start_at, end_at), in order.

    Yields:
        Consecutive stretches. The first has no start, and the last no end.
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
    """Return the instants in a block of 366 days at which the offset changes, and the new offsets.

    Samples once a day. Since 1970, no zone has changed twice within 6 days (the closest two changes
    are 167 hours apart), so no pair of changes can hide between two samples.
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
    """Return a hint with the zones whose names or cities are most similar."""
    exact = {zone.lower(): zone for zone in sorted(available_timezones() - _NOT_ZONES)}
    cities = {lower.rsplit("/", 1)[-1]: zone for lower, zone in exact.items()}
    text = name[:80].lower().replace(" ", "_")
    whole = [exact[near] for near in get_close_matches(text, exact, n=2)]
    city = [cities[near] for near in get_close_matches(text.rsplit("/", 1)[-1], cities, n=2)]
    names = dict.fromkeys([*city, *whole])
    return f"did you mean {' or '.join(names)}?" if names else 'IANA names are as "Europe/Berlin"'
