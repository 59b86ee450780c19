"""Lanes on the command line: `calls:3,mail`."""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.errors import InvalidValue
from headway.core.naming import check_name


def read_lanes(texts: Sequence[str]) -> dict[str, int]:
    """Reads lanes with their weights.

    Args:
        texts: each with lanes between commas; `:n` after a lane is its weight, else 1. A colon
            that is not followed by a whole number belongs to the name.

    Returns:
        The weights by lane, in the order given.

    Raises:
        InvalidValue: a lane has no usable name, a weight of 0, or comes twice.
    """
    weights: dict[str, int] = {}
    for part in (part.strip() for text in texts for part in text.split(",")):
        name, colon, number = part.rpartition(":")
        if not colon or not number.isdecimal():
            name, number = part, "1"
        check_name("lane", name)
        if name in weights:
            message = f"the lane {name!r} is given twice"
            raise InvalidValue(message, hint="give it once, with its weight as name:2")
        weights[name] = int(number)
        if not weights[name]:
            message = f"the weight of the lane {name!r} is 0"
            raise InvalidValue(message, hint="at least 1, or leave the lane out")
    return weights
