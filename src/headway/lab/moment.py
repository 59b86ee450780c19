"""Moments of a scenario: after its start, by the clock on the wall, or an instant."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

from pydantic import BeforeValidator

from headway.core.duration import parse_duration
from headway.core.errors import InvalidValue
from headway.core.instant import parse_instant
from headway.core.local_time import parse_minute
from headway.core.zone import find_zone, first_instant, wall_clock


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """One of three ways to say when.

    Attributes:
        after_ms: a span after the scenario's start.
        minute: of the day, by the clock of the scenario's zone; the first after its start.
    """

    after_ms: int | None = None
    minute: int | None = None
    at: int | None = None

    def resolve(self, start_at: int, zone: str) -> int:
        """The instant that is meant.

        Args:
            zone: the IANA zone of its clock.

        Returns:
            Milliseconds UTC, not before the start unless an earlier instant is named.
        """
        if self.at is not None:
            return self.at
        if self.minute is None:
            return start_at + (self.after_ms or 0)
        clock = find_zone(zone)
        today = wall_clock(clock, start_at).date()
        midnight = datetime.combine(today, datetime.min.time())
        at = start_at - 1
        while at < start_at:
            at = first_instant(clock, midnight + timedelta(minutes=self.minute))
            midnight += timedelta(days=1)
        return at


def read_moment(value: object) -> Moment:
    """Read "2h" (after the start), "14:30" (by the clock) or an instant with an offset.

    Raises:
        InvalidValue: it is none of these.
    """
    if isinstance(value, Moment):
        return value
    if isinstance(value, datetime):
        return Moment(at=parse_instant(value))
    if not isinstance(value, str):
        message = f"a moment cannot be read from {value!r}"
        raise InvalidValue(message, hint='write "2h" after the start, "14:30", or an instant')
    if "T" in value or value.count("-") > 1:
        return Moment(at=parse_instant(value))
    if ":" in value:
        return Moment(minute=parse_minute(value))
    return Moment(after_ms=parse_duration(value))


When = Annotated[Moment, BeforeValidator(read_moment)]
"""A field of a scenario that is a moment."""
