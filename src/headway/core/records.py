"""The field names of dataclasses and msgspec structs."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any


@cache
def field_names(kind: type[Any]) -> tuple[str, ...]:
    """Return the names of a type's fields, in order; empty if it is neither of these."""
    if is_dataclass(kind):
        return tuple(one.name for one in fields(kind))
    # Identify a struct by this attribute, so that msgspec need not be imported.
    return getattr(kind, "__struct_fields__", ())
