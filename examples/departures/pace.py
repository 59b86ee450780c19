"""How fast the day passes: instants and spans of the day, converted to the time of the run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

MAX_SPEED = 10_000
"""Above it, 75 s of the day would be a handful of milliseconds."""

SPEED = "DEPARTURES_SPEED"
START = "DEPARTURES_START"
OPENS = "DEPARTURES_OPENS"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """The day, sped up.

    Attributes:
        speed: seconds of the day that pass in one second of the run.
        start_at: the moment of the run at which the day opens.
        opens_at: the moment of the day that falls on `start_at`.
    """

    speed: float
    start_at: datetime
    opens_at: datetime

    def moment(self, at: datetime) -> datetime:
        """The moment of the run that stands for a moment of the day."""
        return self.start_at + (at - self.opens_at) / self.speed

    def span(self, of_day: timedelta) -> timedelta:
        """The span of the run that stands for a span of the day."""
        return of_day / self.speed


def check_speed(text: str | float) -> float:
    """Accept a usable speed.

    Args:
        text: a number above 0, at most 10,000.

    Returns:
        The number.

    Raises:
        ValueError: it is none.
    """
    message = f"the speed {text!r} is not a number above 0 and up to {MAX_SPEED}"
    try:
        speed = float(text)
    except ValueError:
        raise ValueError(message) from None
    if not 0 < speed <= MAX_SPEED:
        raise ValueError(message)
    return speed


def speed_from(environment: Mapping[str, str] = os.environ) -> float:
    """The speed that DEPARTURES_SPEED asks for; 600 where it is not set.

    Args:
        environment: where to look.

    Returns:
        Seconds of the day in one second of the run.

    Raises:
        ValueError: it is no usable speed.
    """
    return check_speed(environment.get(SPEED, "600"))


def pace_from(first: datetime, speed: float, environment: Mapping[str, str] = os.environ) -> Pace:
    """The pace of an import that begins now.

    DEPARTURES_START says when the day opens (three seconds from now if it is not set) and
    DEPARTURES_OPENS which moment of the day that is.

    Args:
        first: the moment of the day to open with where DEPARTURES_OPENS is not set.
        speed: seconds of the day in one second of the run.
        environment: where to look.

    Returns:
        The pace, fixed.

    Raises:
        ValueError: a variable is not what it should be.
    """
    soon = datetime.now(UTC) + timedelta(seconds=3)
    return Pace(
        speed=speed,
        start_at=_moment(START, environment, soon),
        opens_at=_moment(OPENS, environment, first),
    )


def _moment(name: str, environment: Mapping[str, str], default: datetime) -> datetime:
    text = environment.get(name)
    if text is None:
        return default
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.utcoffset() is None:
        message = f"{name} is {text!r}, not ISO 8601 with an offset"
        raise ValueError(message)
    return moment
