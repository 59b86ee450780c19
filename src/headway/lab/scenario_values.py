"""What the values of a scenario file may be, and what holds for each of its tables."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from headway.core.duration import parse_duration
from headway.core.errors import InvalidValue
from headway.core.instant import parse_instant

_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def read_pace(value: object) -> float:
    """Read "120/h" as arrivals in a millisecond.

    Raises:
        InvalidValue: it is no such text.
    """
    number, _, unit = str(value).partition("/")
    try:
        count = float(number)
    except ValueError:
        count = -1.0
    if unit.strip() not in _UNITS_MS or not 0 <= count < 1e12:
        message = f"the rate {value!r} is not understood"
        raise InvalidValue(message, hint='a number of arrivals in a time, as "120/h" (s, m, h, d)')
    return count / _UNITS_MS[unit.strip()]


Span = Annotated[int, BeforeValidator(parse_duration)]
Instant = Annotated[int, BeforeValidator(parse_instant)]
Pace = Annotated[float, BeforeValidator(read_pace)]
Share = Annotated[float, Field(ge=0, le=1)]


class Table(BaseModel):
    """A table of the file: nothing in it is unknown, and nothing is guessed."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
