"""The fields of a record, whether it is a dataclass or a msgspec struct."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any


@cache
def field_names(kind: type[Any]) -> tuple[str, ...]:
    """Return the names of a record's fields, in order; empty if it has none or is no record."""
    if is_dataclass(kind):
        return tuple(one.name for one in fields(kind))
    # A struct is known by this attribute, so that its library need not be imported.
    return getattr(kind, "__struct_fields__", ())
