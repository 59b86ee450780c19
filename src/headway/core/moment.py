"""Moments as written by a user: an instant with its offset, or a span from now."""

from __future__ import annotations

from dataclasses import dataclass

from headway.core.duration import parse_duration
from headway.core.errors import InvalidValue
from headway.core.instant import parse_instant


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """A moment; exactly one of the two is known.

    Attributes:
        at: ms UTC.
        after_ms: from the store's now.
    """

    at: int | None = None
    after_ms: int | None = None

    def resolved(self, now: int) -> int:
        """The moment in ms UTC; `now` is the store's time."""
        return now + (self.after_ms or 0) if self.at is None else self.at


def parse_moment(option: str, text: str) -> Moment:
    """Read a moment.

    Args:
        option: where it was given, for the message; empty if that is said elsewhere.
        text: ISO 8601 with an offset, or a span such as "20m".

    Returns:
        The moment.

    Raises:
        InvalidValue: it is neither.
    """
    place = f"{option}: " if option else ""
    try:
        return Moment(after_ms=parse_duration(text))
    except InvalidValue as no_span:
        if text.strip()[:1].isdigit() and "-" not in text:
            message = f"{place}{no_span.message}"
            raise InvalidValue(message, hint=no_span.hint) from None
    try:
        return Moment(at=parse_instant(text))
    except InvalidValue as no_instant:
        message = f"{place}{no_instant.message}"
        hint = f'{no_instant.hint}, or a span from now as "20m"'
        raise InvalidValue(message, hint=hint) from None


def optional_moment(option: str, text: str | None) -> Moment | None:
    """Read a moment that need not be given; raises as `parse_moment`."""
    return None if text is None else parse_moment(option, text)
