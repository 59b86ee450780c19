"""Random draws that depend only on the seed and their purpose, not on earlier draws.

So a call has the same length and the same outcome in a scenario and its what-ifs, and any
difference between their reports comes from what was changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Annotated, TypeVar, cast

from pydantic import BeforeValidator

from headway.core.errors import InvalidValue

Choice = TypeVar("Choice")
_MOST = 10**15
"""A float represents every integer up to this exactly."""


class Draws:
    """A pseudorandom generator whose values are a hash of the seed and the purpose of a draw."""

    def __init__(self, seed: int) -> None:
        self._seed = blake2b(str(seed).encode(), digest_size=32).digest()

    def unit(self, *purpose: object) -> float:
        """Return a number between 0 and 1, both exclusive; always the same for a purpose."""
        text = "\x1f".join(map(str, purpose))
        digest = blake2b(text.encode(), digest_size=8, key=self._seed).digest()
        # 52 bits plus the half fit a float exactly, so the result is never rounded to 1.
        return ((int.from_bytes(digest) >> 12) + 0.5) / 2**52

    def chance(self, share: float, *purpose: object) -> bool:
        """Return True with this probability."""
        return self.unit(*purpose) < share

    def choose(self, weights: Mapping[Choice, float], *purpose: object) -> Choice:
        """Return one of several choices, by weight; at least one weight must be above 0."""
        left = self.unit(*purpose) * sum(weights.values())
        chosen = next(iter(weights))
        for choice, weight in weights.items():
            if weight > 0:
                chosen = choice
                left -= weight
                if left < 0:
                    break
        return chosen


_NUMBERED = {"numbered", "as"}
_HINT = (
    'write a plain value, {choice = ["a", "b"]}, {choice = {a = 3, b = 1}}, '
    '{numbered = 500, as = "+1555{:07}"} or {field = "origin"}'
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Argument:
    """How the value of a job's argument is chosen.

    Attributes:
        value: constant value, if none of the others is set.
        choice: possible values and their weights.
        numbered: number of different values, all equally likely.
        pattern: format string for the number of a value.
        column: field of the file's row that contains the value.
    """

    value: object = None
    choice: Mapping[str, float] = field(default_factory=dict[str, float])
    numbered: int = 0
    pattern: str = "{}"
    column: str = ""

    def draw(self, draws: Draws, row: Mapping[str, object], *purpose: object) -> object:
        """Return a value.

        Args:
            row: row of the file; empty if there is no file.

        Raises:
            InvalidValue: the row does not have the field.
        """
        if self.choice:
            return draws.choose(self.choice, *purpose)
        if self.numbered:
            return self.pattern.format(int(draws.unit(*purpose) * self.numbered))
        if self.column:
            if self.column not in row:
                message = f"the row has no field {self.column!r}"
                named = ", ".join(map(str, row)) or "no fields, because its jobs are from no file"
                raise InvalidValue(message, hint=f"it has {named}")
            return row[self.column]
        return self.value


def read_argument(value: object) -> Argument:
    """Read an argument of a scenario file.

    Raises:
        InvalidValue: it is a table, but not one of the known forms.
    """
    if isinstance(value, Argument):
        return value
    if not isinstance(value, dict):
        return Argument(value=value)
    table = cast("dict[str, object]", value)
    match table:
        case {"choice": choices} if len(table) == 1 and choices:
            return Argument(choice=_weights(choices))
        case {"numbered": int() as count} if 0 < count < _MOST and table.keys() <= _NUMBERED:
            return Argument(numbered=count, pattern=_pattern(table.get("as", "{}"), count - 1))
        case {"field": str() as column} if len(table) == 1 and column:
            return Argument(column=column)
        case _:
            message = f"no value can be chosen from {table!r}"
            raise InvalidValue(message, hint=_HINT)


def _weights(choices: object) -> dict[str, float]:
    if isinstance(choices, list):
        return dict.fromkeys(map(str, cast("list[object]", choices)), 1.0)
    if not isinstance(choices, dict):
        message = f"the choice is {choices!r}"
        raise InvalidValue(message, hint=_HINT)
    table = cast("dict[str, object]", choices)
    weights: dict[str, float] = {}
    for name, weight in table.items():
        if (
            isinstance(weight, bool)
            or not isinstance(weight, int | float)
            or not 0 <= weight < _MOST
        ):
            message = f"the weight of {name!r} is {weight!r}"
            raise InvalidValue(message, hint="weights are numbers from 0, below 1e15")
        weights[name] = float(weight)
    if not sum(weights.values()):
        message = "no choice has a weight above 0"
        raise InvalidValue(message, hint=_HINT)
    return weights


def _pattern(text: object, last: int) -> str:
    try:
        cast("str", text).format(0)
        cast("str", text).format(last)
    except (AttributeError, LookupError, OverflowError, ValueError):
        message = f"{text!r} is not a format for a number"
        raise InvalidValue(message, hint='write it as in "+1555{:07}"') from None
    return cast("str", text)


Drawn = Annotated[Argument, BeforeValidator(read_argument)]
"""A field of a scenario file that sets an argument."""
