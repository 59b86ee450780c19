"""Rows of the reference and rows of scripts, told alike so that they can be compared and sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any, cast

import msgspec


def told(value: object) -> Any:
    """A value as scripts know it: records are maps without what is None, bytes are text.

    An empty map is told as an empty list, for Lua has one for both.
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
        found = [told(one) for one in cast("Sequence[object]", value)]
    return found


def _record(values: Mapping[str, object]) -> Any:
    found = {name: told(one) for name, one in values.items() if one is not None}
    return found or []
