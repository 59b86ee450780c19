"""What the records of the contract have in common: dataclasses and msgspec structs have fields."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

import msgspec


@cache
def field_names(kind: type[Any]) -> tuple[str, ...]:
    """Return the names of a record's fields, in their order; empty if it is no record."""
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    return tuple(one.name for one in fields(kind)) if is_dataclass(kind) else ()
