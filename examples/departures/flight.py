"""A row of the day: one planned flight."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

import msgspec

Code = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9-]{1,16}\Z")]
"""Code of a flight, a carrier, an aircraft or an airport."""

Minutes = Annotated[int, msgspec.Meta(ge=1, le=2_880)]

GROUND_TIME = timedelta(minutes=60)


class MalformedRow(ValueError):
    """A row is not a flight; the message names the field and the fault."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Flight:
    """One planned departure.

    Attributes:
        flight: Carrier and number, such as UA1018.
        aircraft: Tail number; None if none was assigned.
        origin: Airport of departure.
        dest: Airport of arrival.
        due_at: Scheduled time, ISO 8601 with an offset.
        air_time_min: Minutes in the air; None if the flight was cancelled.
    """

    flight: Code
    carrier: Code
    aircraft: Code | None
    origin: Code
    dest: Code
    due_at: str
    air_time_min: Minutes | None

    def __post_init__(self) -> None:
        """Validate the scheduled time.

        Raises:
            ValueError: `due_at` is not ISO 8601 or has no offset.
        """
        try:
            moment = datetime.fromisoformat(self.due_at)
        except ValueError:
            message = f"`due_at` is not an ISO 8601 time: {self.due_at[:40]!r}"
            raise ValueError(message) from None
        if moment.utcoffset() is None:
            message = f"`due_at` has no offset from UTC: {self.due_at!r}"
            raise ValueError(message)

    @property
    def moment(self) -> datetime:
        """The scheduled time."""
        return datetime.fromisoformat(self.due_at)

    @property
    def cancelled(self) -> bool:
        """Whether the flight was cancelled."""
        return self.air_time_min is None

    @property
    def identity(self) -> str:
        """A name that is unique among all flights of all days."""
        return f"{self.flight} {self.origin} {self.due_at}"


def read_flight(row: object) -> Flight:
    """Return the flight of one decoded row, ignoring other fields.

    Raises:
        MalformedRow: a field is missing or not valid.
    """
    try:
        return msgspec.convert(row, Flight)
    except msgspec.ValidationError as error:
        raise MalformedRow(str(error)) from None


def away(air_time_min: int) -> timedelta:
    """Return how long an aircraft is away: there, an hour on the ground, and back.

    Args:
        air_time_min: Minutes in the air, one way.
    """
    return 2 * timedelta(minutes=air_time_min) + GROUND_TIME
