"""How long something takes: constant, drawn at random, or given by an argument."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, cast

from pydantic import BeforeValidator

from headway.core.duration import MAX_DURATION_MS, parse_duration
from headway.core.errors import InvalidValue

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
    """A span of time, drawn for each use.

    Attributes:
        shape: constant, uniform, exponential, lognormal or argument.
        first_ms: the span; the least; the mean; the median; what one unit of the argument is.
        second_ms: the most of a uniform one; what is added to the argument's.
        sigma: of the logarithm, of a lognormal one.
        argument: the name of the job's argument that gives it.
        at_least_ms: what is shorter becomes this.
        at_most_ms: what is longer becomes this.
    """

    shape: str = "constant"
    first_ms: int = 0
    second_ms: int = 0
    sigma: float = 1.0
    argument: str = ""
    at_least_ms: int = 0
    at_most_ms: int = MAX_DURATION_MS

    def draw(self, unit: float, args: Mapping[str, object]) -> int:
        """One span.

        Args:
            unit: between 0 and 1, both excluded.

        Returns:
            Milliseconds.

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
            message = f"the argument {self.argument!r} is {value!r}, which is no length"
            raise InvalidValue(message, hint="give the number of units, from 0")
        return value


def read_distribution(value: object) -> Distribution:
    """Read what a scenario says.

    Args:
        value: a duration, or a table that names one shape.

    Returns:
        The distribution.

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
        message = f"one shape is wanted, and {' and '.join(named) or 'none'} is named"
        raise InvalidValue(message, hint=_HINT)
    shape = named[0]
    strange = table.keys() - {shape} - _EXTRAS.get(shape, set()) - _LIMITS
    if strange:
        message = f"{min(strange)!r} says nothing of a {shape} time"
        raise InvalidValue(message, hint=_HINT)
    return _read_shape(shape, table)


def _read_shape(shape: str, table: dict[str, object]) -> Distribution:
    given = table[shape]
    first, second = given, "0s"
    if shape == "uniform":
        first, second = _two(given)
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
        raise InvalidValue(message, hint="the least comes first")
    return made


def _two(given: object) -> tuple[object, object]:
    both = cast("list[object]", given) if isinstance(given, list) else []
    if len(both) != 2:
        message = f"uniform is {given!r}"
        raise InvalidValue(message, hint='give the least and the most: ["1s", "3s"]')
    return both[0], both[1]


def _sigma(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 10:
        message = f"sigma is {value!r}"
        raise InvalidValue(message, hint="a number from 0 to 10, such as 0.5")
    return float(value)


Spread = Annotated[Distribution, BeforeValidator(read_distribution)]
"""A field of a scenario that is a distribution."""
