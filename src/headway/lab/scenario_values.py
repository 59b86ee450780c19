"""The values of a scenario file: durations, rates, times, and random durations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import NormalDist
from typing import Annotated, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from headway.core.duration import MAX_DURATION_MS, parse_duration
from headway.core.errors import InvalidValue
from headway.core.instant import parse_instant
from headway.core.local_time import find_zone, first_instant, parse_minute, wall_clock

_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def read_pace(value: object) -> float:
    """Read a rate such as "120/h", as arrivals per millisecond.

    Raises:
        InvalidValue: it is not a rate.
    """
    number, _, unit = str(value).partition("/")
    try:
        count = float(number)
    except ValueError:
        count = -1.0
    if unit.strip() not in _UNITS_MS or not 0 <= count < 1e12:
        message = f"the rate {value!r} is not valid"
        raise InvalidValue(message, hint='write arrivals per s, m, h or d, such as "120/h"')
    return count / _UNITS_MS[unit.strip()]


Span = Annotated[int, BeforeValidator(parse_duration)]
InstantField = Annotated[int, BeforeValidator(parse_instant)]
PaceField = Annotated[float, BeforeValidator(read_pace)]
Share = Annotated[float, Field(ge=0, le=1)]


class Table(BaseModel):
    """A table of the file, which refuses unknown keys and converts no types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Moment:
    """A time in a scenario; exactly one attribute is set.

    Attributes:
        after_ms: duration after the scenario's start.
        minute: minute of the day in the scenario's time zone; its first occurrence from the start.
        at: instant, in ms UTC.
    """

    after_ms: int | None = None
    minute: int | None = None
    at: int | None = None

    def resolve(self, start_at: int, zone: str) -> int:
        """Return the instant in ms UTC; only an explicit instant can be before the start.

        Args:
            start_at: start of the scenario, in ms UTC.
            zone: IANA time zone of the scenario.
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


def read_moment(value: object) -> _Moment:
    """Read "2h" (after the start), "14:30" (local time) or an instant with an offset.

    Raises:
        InvalidValue: it is none of these.
    """
    if isinstance(value, _Moment):
        return value
    if isinstance(value, datetime):
        return _Moment(at=parse_instant(value))
    if not isinstance(value, str):
        message = f"{value!r} is not a valid time"
        raise InvalidValue(message, hint='write "2h" (after the start), "14:30" or an instant')
    if "T" in value or value.count("-") > 1:
        return _Moment(at=parse_instant(value))
    if ":" in value:
        return _Moment(minute=parse_minute(value))
    return _Moment(after_ms=parse_duration(value))


When = Annotated[_Moment, BeforeValidator(read_moment)]
"""A field of a scenario file that is a time."""


_NORMAL = NormalDist()
_SHAPES = ("constant", "uniform", "exponential", "lognormal", "argument")
_EXTRAS = {"lognormal": {"sigma"}, "argument": {"unit", "plus"}}
_LIMITS = {"at_least", "at_most"}
_HINT = (
    'write "90s", {uniform = ["1s", "3s"]}, {exponential = "2s"}, {lognormal = "2s", sigma = 0.5} '
    'or {argument = "minutes", unit = "1m", plus = "10s"}'
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """A distribution of durations, from which one is drawn for each use.

    Attributes:
        shape: constant, uniform, exponential, lognormal or argument.
        first_ms: by shape, in this order: the duration, the minimum, the mean, the median, or the
            duration of one unit of the argument.
        second_ms: maximum of a uniform distribution; constant added for an argument.
        sigma: standard deviation of the logarithm, for lognormal.
        argument: name of the job's argument that contains the number of units.
        at_least_ms: lower bound; shorter durations are raised to it.
        at_most_ms: upper bound; longer durations are cut to it.
    """

    shape: str = "constant"
    first_ms: int = 0
    second_ms: int = 0
    sigma: float = 1.0
    argument: str = ""
    at_least_ms: int = 0
    at_most_ms: int = MAX_DURATION_MS

    def draw(self, unit: float, args: Mapping[str, object]) -> int:
        """Return a duration in ms.

        Args:
            unit: random number between 0 and 1, both exclusive.

        Raises:
            InvalidValue: the argument is missing, or not a number from 0.
        """
        return round(min(max(self._raw(unit, args), self.at_least_ms), self.at_most_ms))

    def _raw(self, unit: float, args: Mapping[str, object]) -> float:
        match self.shape:
            case "uniform":
                return self.first_ms + unit * (self.second_ms - self.first_ms)
            case "exponential":
                return -math.log(unit) * self.first_ms
            case "lognormal":
                return self.first_ms * math.exp(self.sigma * _NORMAL.inv_cdf(unit))
            case "argument":
                return self.second_ms + self._length(args) * self.first_ms
            case _:
                return self.first_ms

    def _length(self, args: Mapping[str, object]) -> float:
        value = args.get(self.argument)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            message = f"the argument {self.argument!r} is {value!r}, which is not a duration"
            raise InvalidValue(message, hint="pass the number of units, from 0")
        return value


def read_distribution(value: object) -> Distribution:
    """Read a duration, or a table with one shape.

    Raises:
        InvalidValue: it is neither.
    """
    if isinstance(value, Distribution):
        return value
    if not isinstance(value, dict):
        return Distribution(first_ms=parse_duration(value))
    table = cast("dict[str, object]", value)
    named = [shape for shape in _SHAPES if shape in table]
    if len(named) != 1:
        message = f"one shape is required, not {' and '.join(named) or 'none'}"
        raise InvalidValue(message, hint=_HINT)
    shape = named[0]
    unknown = table.keys() - {shape} - _EXTRAS.get(shape, set()) - _LIMITS
    if unknown:
        message = f"{min(unknown)!r} is not a key of the shape {shape}"
        raise InvalidValue(message, hint=_HINT)
    return _read_shape(shape, table)


def _read_shape(shape: str, table: dict[str, object]) -> Distribution:
    given = table[shape]
    first, second = given, "0s"
    if shape == "uniform":
        first, second = _pair(given)
    if shape == "argument":
        first, second = table.get("unit", "1s"), table.get("plus", "0s")
    made = Distribution(
        shape=shape,
        first_ms=parse_duration(first),
        second_ms=parse_duration(second),
        sigma=_sigma(table.get("sigma", 1.0)),
        argument=str(given) if shape == "argument" else "",
        at_least_ms=parse_duration(table.get("at_least", "0s")),
        at_most_ms=parse_duration(table.get("at_most", "36525d")),
    )
    if shape == "uniform" and made.second_ms < made.first_ms:
        message = f"uniform is {given!r}"
        raise InvalidValue(message, hint="write the minimum first")
    return made


def _pair(given: object) -> tuple[object, object]:
    both = cast("list[object]", given) if isinstance(given, list) else []
    if len(both) != 2:
        message = f"uniform is {given!r}"
        raise InvalidValue(message, hint='write the minimum and the maximum: ["1s", "3s"]')
    return both[0], both[1]


def _sigma(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 10:
        message = f"sigma is {value!r}"
        raise InvalidValue(message, hint="write a number from 0 to 10, such as 0.5")
    return float(value)


Spread = Annotated[Distribution, BeforeValidator(read_distribution)]
"""A field of a scenario file that is a distribution."""
