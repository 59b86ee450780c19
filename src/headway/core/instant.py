"""Instants: aware datetimes or ISO 8601 in the API, milliseconds since 1970 UTC internally."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from headway.core.duration import parse_duration
from headway.core.errors import InvalidValue
from headway.core.local_time import EPOCH, MAX_AT, find_zone, offset_ms

_HINT = 'write ISO 8601 with an offset, as "2026-12-01T10:00-08:00" or "2026-12-01T18:00Z"'


Instant = str | datetime
"""An instant in the public API: ISO 8601 with an offset, or an aware datetime."""


def parse_instant(value: object) -> int:
    """Parse an instant.

    Args:
        value: an aware datetime, or ISO 8601 text with an offset or Z. Fractions of a millisecond
            are cut off. In the fold of a zone's clock, `datetime.fold` decides.

    Returns:
        Milliseconds since 1970-01-01T00:00Z, from 0 to the end of the year 9999.

    Raises:
        InvalidValue: the value is neither, has no offset, or is outside the years 1970 to 9999.
    """
    moment = _read(value) if isinstance(value, str) else value
    if not isinstance(moment, datetime):
        message = f"an instant cannot be parsed from {value!r:.60}"
        raise InvalidValue(message, hint=f"{_HINT}, or pass an aware datetime")
    offset = moment.utcoffset()
    if offset is None:
        message = f"the instant {value!r:.60} has no offset from UTC"
        hint = _HINT if isinstance(value, str) else f"{_HINT}; a datetime needs tzinfo"
        raise InvalidValue(message, hint=hint)
    # Subtract the offset manually: datetime would overflow at the ends of its years.
    at = (moment.replace(tzinfo=None) - EPOCH - offset) // timedelta(milliseconds=1)
    if not 0 <= at <= MAX_AT:
        message = f"the instant {value!r:.60} is outside the years 1970 to 9999"
        raise InvalidValue(message, hint="check the year")
    return at


def format_instant(at: int, zone: str | None = None) -> str:
    """Format an instant as ISO 8601 with its offset.

    Args:
        at: milliseconds since 1970 UTC.
        zone: an IANA time zone to show it in; None for UTC, shown as Z.

    Returns:
        Text that `parse_instant` accepts; milliseconds are shown if they are not zero.

    Raises:
        InvalidValue: the zone is unknown, or the instant is outside the years 1970 to 9999.
    """
    if not 0 <= at <= MAX_AT:
        message = f"the instant {at!r:.60} ms is outside the years 1970 to 9999"
        raise InvalidValue(message, hint="instants are milliseconds since 1970 UTC")
    precision = "milliseconds" if at % 1000 else "seconds"
    shift_ms = 0 if zone is None else offset_ms(find_zone(zone), at)
    try:
        wall = EPOCH + timedelta(milliseconds=at + shift_ms)
    except OverflowError:
        message = f"the instant {at!r:.60} ms is past the year 9999 in {zone}"
        raise InvalidValue(message, hint="show it in UTC") from None
    text = wall.isoformat(timespec=precision)
    return f"{text}Z" if zone is None else text + _offset_text(shift_ms)


def _read(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        message = f"the instant {text!r:.60} is not understood"
        raise InvalidValue(message, hint=_HINT) from None


def _offset_text(shift_ms: int) -> str:
    minutes, seconds = divmod(abs(shift_ms) // 1000, 60)
    sign = "-" if shift_ms < 0 else "+"
    text = f"{sign}{minutes // 60:02}:{minutes % 60:02}"
    return f"{text}:{seconds:02}" if seconds else text


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """A point in time, absolute or relative; exactly one attribute is set.

    Attributes:
        at: ms UTC.
        after_ms: ms from the store's current time.
    """

    at: int | None = None
    after_ms: int | None = None

    def resolved(self, now: int) -> int:
        """Return the time in ms UTC; `now` is the store's current time."""
        return now + (self.after_ms or 0) if self.at is None else self.at

    def ago(self, now: int) -> int:
        """Return the time in ms UTC, with the duration counted back from now."""
        return now - (self.after_ms or 0) if self.at is None else self.at

    def ahead(self, option: str, now: int) -> int:
        """Return the time in ms UTC, which must be in the future.

        Args:
            option: option or field that contained it, for error messages.
            now: the store's current time, ms UTC.

        Raises:
            InvalidValue: it is not in the future.
        """
        at = self.resolved(now)
        if at <= now:
            message = (
                f"{option} is {format_instant(at)}, which is not in the future: "
                f"it is now {format_instant(now)}"
            )
            raise InvalidValue(message, hint="pass a future time, or a duration such as 20m")
        return at


def parse_moment(option: str, text: str) -> Moment:
    """Parse a point in time.

    Args:
        option: option or field that contained the text, for error messages; may be empty.
        text: ISO 8601 with an offset, or a duration such as "20m".

    Raises:
        InvalidValue: the text is neither.
    """
    place = f"{option}: " if option else ""
    # A duration never contains a hyphen, and raising an error for a text that is not a duration
    # costs more than parsing it as an instant.
    if "-" not in text:
        try:
            return Moment(after_ms=parse_duration(text))
        except InvalidValue as no_span:
            if text.strip()[:1].isdigit():
                message = f"{place}{no_span.message}"
                raise InvalidValue(message, hint=no_span.hint) from None
    try:
        return Moment(at=parse_instant(text))
    except InvalidValue as no_instant:
        message = f"{place}{no_instant.message}"
        hint = f'{no_instant.hint}, or a duration such as "20m"'
        raise InvalidValue(message, hint=hint) from None


def optional_moment(option: str, text: str | None) -> Moment | None:
    """Parse an optional point in time; raises as `parse_moment` does."""
    return None if text is None else parse_moment(option, text)
