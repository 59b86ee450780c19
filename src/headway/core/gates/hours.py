"""Opening hours of a gate: local times, and the intervals of absolute time they correspond to.

One rule covers everything, including clock changes: **an instant is open if and only if the wall
clock of the zone, at that instant, shows a time inside a span of the day on which that span
starts.** Its consequences when clocks change:

* Forward (a gap): the times jumped over never occur. A span that would open in the gap opens at the
  end of the gap, one that would close in it closes there, and one entirely inside it is not open
  on that day.
* Backward (a fold): times that occur twice are open, or closed, both times. A span that covers the
  whole fold is open for longer; one that starts or ends inside the fold opens twice: with
  "00:30-01:30" and clocks set back from 02:00 to 01:00, it is open from 00:30 to 01:30 and again
  from 01:00 to 01:30. The hours are never open while the clock shows a time outside the spans.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from operator import itemgetter
from typing import Any, cast

from headway.core.errors import InvalidValue
from headway.core.local_time import (
    DAY_MINUTES,
    DAY_MS,
    EVERY_DAY,
    find_zone,
    format_days,
    format_minute,
    parse_days,
    parse_minute,
    stretches,
    wall_clock,
    wall_ms,
)
from headway.core.naming import placeholders

Spans = tuple[tuple[int, int], ...]
Intervals = tuple[tuple[int, int], ...]

_SPANS_HINT = 'write spans as "09:00-18:00", "09:00-12:00,13:00-18:00" or "22:00-06:00"'
_RECORD_HINT = "create it with HoursSpec.to_dict"
_MINUTE_MS = 60_000


@dataclass(frozen=True, kw_only=True, slots=True)
class HoursSpec:
    """When a gate is open, in local time.

    Attributes:
        spans: pairs of (opening, closing) in minutes since the midnight at the start of the day, in
            order, without overlap; a closing above 1440 is on the next day.
        days: weekdays on which the spans start, 0 for Monday to 6, in order.
        tz: IANA time zone, or a template such as "{tz}" that is resolved for each job.
        exceptions: dates with their own spans, in order; no spans means closed. They apply to spans
            that start on the date, on any weekday: a span from the evening before still ends on the
            morning of a closed date.
    """

    spans: Spans
    days: tuple[int, ...]
    tz: str
    exceptions: tuple[tuple[date, Spans], ...] = ()

    def spans_on(self, day: date) -> Spans:
        """Return the spans that start on this date."""
        for exception, spans in self.exceptions:
            if exception == day:
                return spans
        return self.spans if day.weekday() in self.days else ()

    def describe(self) -> str:
        """Return the hours in one line, as "09:00-18:00 mon-fri UTC, 1 exception"."""
        parts = [format_spans(self.spans), format_days(self.days), self.tz]
        count = len(self.exceptions)
        text = " ".join(parts)
        return f"{text}, {count} exception{'s'[: count > 1]}" if count else text

    def to_dict(self) -> dict[str, object]:
        """Return the hours as JSON values; `from_dict` is the inverse."""
        return {
            "spans": [list(span) for span in self.spans],
            "days": list(self.days),
            "tz": self.tz,
            "exceptions": {
                day.isoformat(): [list(span) for span in spans] for day, spans in self.exceptions
            },
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, object]) -> HoursSpec:
        """Parse what `to_dict` returned.

        Raises:
            InvalidValue: the record is not valid.
        """
        try:
            days = cast("list[int]", record["days"])
            exceptions = cast("Mapping[str, object]", record["exceptions"])
            return cls(
                spans=_checked(record["spans"]),
                days=tuple(EVERY_DAY[day] for day in sorted(set(days))),
                tz=_zone_name(record["tz"]),
                exceptions=_by_day(exceptions, _checked),
            )
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            message = f"this is not a record of hours: {str(error)[:120]}"
            raise InvalidValue(message, hint=_RECORD_HINT) from None


def hours_spec(
    spans: str,
    *,
    days: str = "daily",
    tz: str = "UTC",
    exceptions: Mapping[str, str | None] | Mapping[date, str | None] | None = None,
) -> HoursSpec:
    """Parse opening hours.

    Args:
        spans: "09:00-18:00", or several spans separated by commas. A closing of 24:00 is the end of
            the day; one that is not after its opening is on the next day.
        days: weekdays on which the spans start: "mon-fri", "mon,wed,sat-sun" or "daily".
        tz: IANA time zone, or a template such as "{tz}".
        exceptions: dates ("2026-12-25") with their own spans; None for closed all day.

    Raises:
        InvalidValue: a part cannot be parsed, two spans overlap, or the zone is unknown.
    """
    if not isinstance(cast("object", exceptions), Mapping | None):
        message = f"exceptions of hours are {exceptions!r:.80}"
        raise InvalidValue(message, hint='pass a mapping, such as {"2026-12-25": None}')
    return HoursSpec(
        spans=_spans(spans),
        days=parse_days(days),
        tz=_zone_name(tz),
        exceptions=_by_day(exceptions or {}, _spans),
    )


def intervals(spec: HoursSpec, zone: str, start_at: int, end_at: int) -> Intervals:
    """Return the intervals of absolute time in which the hours are open.

    Args:
        spec: the hours; their own `tz` is not used.
        zone: the IANA time zone in which they apply.
        start_at: start of the range, ms UTC.
        end_at: end of the range, exclusive, ms UTC.

    Returns:
        Intervals [open_at, close_at) in ms UTC that overlap [start_at, end_at), in order, with gaps
        between them. They are not clipped to the range, but hours that never close are cut between
        one and three days outside it. An instant in the range is in one of the intervals if and
        only if it is open by the rule of this module.

    Raises:
        InvalidValue: the zone is unknown.
    """
    if start_at >= end_at:
        return ()
    clock = find_zone(zone)
    first = wall_clock(clock, start_at).date() - timedelta(days=2)
    last = wall_clock(clock, end_at - 1).date() + timedelta(days=2)
    walls = [
        (midnight + opening * _MINUTE_MS, midnight + closing * _MINUTE_MS)
        for day in (first + timedelta(days=n) for n in range((last - first).days + 1))
        for midnight in [wall_ms(datetime.combine(day, datetime.min.time()))]
        for opening, closing in spec.spans_on(day)
    ]
    if not walls:
        return ()
    found: list[tuple[int, int]] = []
    for stretch in stretches(clock, start_at - 5 * DAY_MS, end_at + 5 * DAY_MS):
        for opening, closing in walls:
            open_at, close_at = opening - stretch.offset_ms, closing - stretch.offset_ms
            if stretch.start_at is not None:
                open_at = max(open_at, stretch.start_at)
            if stretch.end_at is not None:
                close_at = min(close_at, stretch.end_at)
            if open_at < close_at:
                found.append((open_at, close_at))
    return tuple(pair for pair in _merged(found) if pair[0] < end_at and pair[1] > start_at)


def is_open(found: Intervals, at: int) -> bool:
    """Return whether an instant is in one of the intervals, which are in order."""
    last = bisect_right(found, at, key=itemgetter(0)) - 1
    return last >= 0 and at < found[last][1]


def next_opening(found: Intervals, at: int) -> int | None:
    """Return the first open instant not before `at`; None if there is none in the intervals."""
    index = bisect_right(found, at, key=itemgetter(1))
    return max(at, found[index][0]) if index < len(found) else None


def format_spans(spans: Spans) -> str:
    """Format spans as "09:00-12:00,13:00-18:00"; "closed" if there are none."""
    texts = [f"{format_minute(opening)}-{format_minute(closing)}" for opening, closing in spans]
    return ",".join(texts) or "closed"


def _merged(found: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for open_at, close_at in sorted(found):
        if merged and open_at <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(close_at, merged[-1][1]))
        else:
            merged.append((open_at, close_at))
    return merged


def _spans(text: object) -> Spans:
    if text is None:
        return ()
    if not isinstance(text, str):
        message = f"hours must be text, not {type(text).__name__}"
        raise InvalidValue(message, hint=_SPANS_HINT)
    pairs: list[tuple[int, int]] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not dash:
            message = f"the hours {text[:60]!r} have no closing time at {part[:20]!r}"
            raise InvalidValue(message, hint=_SPANS_HINT)
        opening, closing = parse_minute(first), parse_minute(last)
        pairs.append((opening, closing if closing > opening else closing + DAY_MINUTES))
    return _checked(pairs)


def _checked(spans: object) -> Spans:
    """Validate spans, and return them in order.

    Raises:
        InvalidValue: a pair is not a span, or two spans overlap.
    """
    pairs = sorted((opening, closing) for opening, closing in cast("list[list[int]]", spans))
    before = 0
    for opening, closing in pairs:
        # "09:00-09:00" could mean a whole day or nothing: a whole day must be "00:00-24:00".
        whole = closing - opening == DAY_MINUTES and opening > 0
        if (
            not 0 <= opening < DAY_MINUTES
            or not opening < closing <= opening + DAY_MINUTES
            or whole
        ):
            message = f"the hours {format_spans(((opening, closing),))} are empty or reversed"
            raise InvalidValue(message, hint='the whole day is "00:00-24:00"')
        if opening < before:
            message = f"the hours {format_spans(tuple(pairs))} overlap"
            raise InvalidValue(message, hint="each span must start after the end of the one before")
        before = closing
    return tuple(pairs)


def _by_day(
    exceptions: Mapping[Any, object], read: Callable[[object], Spans]
) -> tuple[tuple[date, Spans], ...]:
    """Return the spans of each date, in order.

    Raises:
        InvalidValue: a date or its spans are not valid, or a date is named twice.
    """
    found: dict[date, Spans] = {}
    for name, spans in exceptions.items():
        day = _day(name)
        if day in found:
            message = f"the exception {day} is written twice"
            raise InvalidValue(message, hint="write each date once, as 2026-12-25")
        found[day] = read(spans)
    return tuple(sorted(found.items()))


def _day(day: object) -> date:
    if isinstance(day, date) and not isinstance(day, datetime):
        return day
    try:
        return date.fromisoformat(cast("str", day))
    except (TypeError, ValueError):
        message = f"the exception {repr(day)[:60]} is not a date"
        raise InvalidValue(message, hint='write dates as "2026-12-25"') from None


def _zone_name(tz: object) -> str:
    """Return a time zone unchanged, after checking that it exists or is a template."""
    if not isinstance(tz, str) or not placeholders(tz):
        find_zone(tz)
    return cast("str", tz)
