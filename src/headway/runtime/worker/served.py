"""The lanes that a worker serves, as users write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headway.core.errors import InvalidValue
from headway.core.gates.spec import check_count
from headway.core.naming import check_name

Lanes = str | Mapping[str, int] | Sequence[str | tuple[str, int]]
"""`"calls,mail:2"`, `{"calls": 1, "mail": 2}`, or a list of names and pairs."""


def read_lanes(lanes: Lanes) -> tuple[tuple[str, int], ...]:
    """Reads the lanes that a worker serves.

    Args:
        lanes: names, each with its weight or without; in text, a colon stands before it.

    Returns:
        Each lane and its weight, in the order given.

    Raises:
        InvalidValue: there is none, one is named twice, or a weight is unusable.
    """
    found = tuple(_lane(one) for one in _parts(lanes))
    if not found:
        message = "a worker serves no lane"
        raise InvalidValue(message, hint="name at least one")
    names = [name for name, _ in found]
    for name in names:
        if names.count(name) > 1:
            message = f"the lane {name!r} is named twice"
            raise InvalidValue(message, hint="name it once, with a larger weight")
    return found


def _parts(lanes: Lanes) -> list[str | tuple[str, int]]:
    if isinstance(lanes, str):
        return [_split(part.strip()) for part in lanes.split(",") if part.strip()]
    if isinstance(lanes, Mapping):
        return list(lanes.items())
    return list(lanes)


def _split(part: str) -> str | tuple[str, int]:
    name, colon, weight = part.rpartition(":")
    if not colon:
        return part
    if not (weight.isascii() and weight.isdigit() and len(weight) < 10):
        message = f"the weight of the lane {name!r} is {weight[:40]!r}, not a number from 1"
        hint = f"write {name}:2; a lane with a colon in its name needs a weight behind it: {part}:1"
        raise InvalidValue(message, hint=hint)
    return name, int(weight)


def _lane(one: str | tuple[str, int]) -> tuple[str, int]:
    name, weight = (one, 1) if isinstance(one, str) else one
    check_name("lane", name)
    return name, check_count(f"the weight of the lane {name!r}", weight, least=1)
