"""The pace of the day: converts instants and durations of the day to those of the run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

MAX_SPEED = 10_000
"""Above this, 75 s of the day would be less than 7.5 milliseconds."""

SPEED = "DEPARTURES_SPEED"
START = "DEPARTURES_START"
OPENS = "DEPARTURES_OPENS"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """The day, sped up.

    Attributes:
        speed: Seconds of the day per second of the run.
        start_at: Instant of the run at which the day starts.
        opens_at: Instant of the day that corresponds to `start_at`.
    """

    speed: float
    start_at: datetime
    opens_at: datetime

    def moment(self, at: datetime) -> datetime:
        """Return the instant of the run for an instant of the day."""
        return self.start_at + (at - self.opens_at) / self.speed

    def span(self, of_day: timedelta) -> timedelta:
        """Return the duration in the run for a duration of the day."""
        return of_day / self.speed


def check_speed(text: str | float) -> float:
    """Return a speed as a number.

    Args:
        text: A number above 0, at most 10,000.

    Raises:
        ValueError: the speed is not valid.
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
    """Return the speed in DEPARTURES_SPEED (default: 600), in seconds per second of the run.

    Raises:
        ValueError: the speed is not valid.
    """
    return check_speed(environment.get(SPEED, "600"))


def pace_from(first: datetime, speed: float, environment: Mapping[str, str] = os.environ) -> Pace:
    """Return the pace of an import that starts now.

    DEPARTURES_START is the instant at which the day starts (default: in three seconds), and
    DEPARTURES_OPENS the instant of the day that corresponds to it.

    Args:
        first: Default for DEPARTURES_OPENS.
        speed: Seconds of the day per second of the run.
        environment: The environment variables.

    Raises:
        ValueError: a variable is not valid.
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
