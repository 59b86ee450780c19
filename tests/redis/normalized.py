"""Converts rows of the reference and of scripts to one form, to compare and send them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any, cast

import msgspec


def normalized(value: object) -> Any:
    """Return a value as scripts represent it: records are maps without None values, bytes are text.

    An empty map becomes an empty list, because Lua has the same value for both.
    """
    found = value
    if isinstance(value, StrEnum):
        found = str(value)
    elif isinstance(value, bytes):
        found = value.decode("utf-8", "surrogateescape")
    elif isinstance(value, msgspec.Struct):
        found = _record({name: getattr(value, name) for name in value.__struct_fields__})
    elif is_dataclass(value) and not isinstance(value, type):
        found = _record({one.name: getattr(value, one.name) for one in fields(value)})
    elif hasattr(value, "_asdict"):
        found = _record(cast("Any", value)._asdict())
    elif isinstance(value, Mapping):
        found = _record(cast("Mapping[str, object]", value))
    elif isinstance(value, list | tuple):
        found = [normalized(one) for one in cast("Sequence[object]", value)]
    return found


def _record(values: Mapping[str, object]) -> Any:
    found = {name: normalized(one) for name, one in values.items() if one is not None}
    return found or []
