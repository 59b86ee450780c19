"""A row of the day: one flight as it was planned."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

import msgspec

Code = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9-]{1,16}\Z")]
"""Flights, carriers, aircraft and airports are named by short codes."""

Minutes = Annotated[int, msgspec.Meta(ge=1, le=2_880)]

GROUND_TIME = timedelta(minutes=60)


class MalformedRow(ValueError):
    """A row is not a flight; it says which field and why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Flight:
    """One planned departure.

    Attributes:
        flight: carrier and number, as UA1018.
        carrier: who flies it.
        aircraft: its tail number; None where none was assigned.
        origin: the airport it leaves.
        dest: the airport it goes to.
        due_at: the scheduled moment, ISO 8601 with an offset.
        air_time_min: minutes in the air; None for a flight that was cancelled.
    """

    flight: Code
    carrier: Code
    aircraft: Code | None
    origin: Code
    dest: Code
    due_at: str
    air_time_min: Minutes | None

    def __post_init__(self) -> None:
        """Refuses a moment that is none, so that no flight exists without one.

        Raises:
            ValueError: `due_at` is not ISO 8601 or has no offset.
        """
        try:
            moment = datetime.fromisoformat(self.due_at)
        except ValueError:
            message = f"`due_at` is no ISO 8601 moment: {self.due_at[:40]!r}"
            raise ValueError(message) from None
        if moment.utcoffset() is None:
            message = f"`due_at` has no offset from UTC: {self.due_at!r}"
            raise ValueError(message)

    @property
    def moment(self) -> datetime:
        """The scheduled moment."""
        return datetime.fromisoformat(self.due_at)

    @property
    def cancelled(self) -> bool:
        """Whether it never flew."""
        return self.air_time_min is None

    @property
    def identity(self) -> str:
        """What distinguishes it from every other flight of any day."""
        return f"{self.flight} {self.origin} {self.due_at}"


def read_flight(row: object) -> Flight:
    """Reads one decoded row; fields that a flight does not need are ignored.

    Args:
        row: what one line of the day's file decodes to.

    Returns:
        The flight.

    Raises:
        MalformedRow: a field is missing or cannot be what it is meant to be.
    """
    try:
        return msgspec.convert(row, Flight)
    except msgspec.ValidationError as error:
        raise MalformedRow(str(error)) from None


def away(air_time_min: int) -> timedelta:
    """How long an aircraft is gone: there, an hour on the ground, and back.

    Args:
        air_time_min: minutes in the air, one way.

    Returns:
        From leaving until it can leave again.
    """
    return 2 * timedelta(minutes=air_time_min) + GROUND_TIME
