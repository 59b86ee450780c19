"""A what-if: the same scenario with a few values changed."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, cast

from headway.core.errors import InvalidValue

_WHOLE = frozenset(
    {"constant", "uniform", "exponential", "lognormal", "argument", "choice", "numbered", "field"}
)
"""A table with one of these says one value, and is replaced, not mixed with the old one."""


def merged(base: dict[str, Any], changes: dict[str, object]) -> dict[str, Any]:
    """A scenario's tables with some values changed.

    Tables are gone into; anything else is replaced. Among lists of tables, the one that is meant
    is addressed by its `name`.

    Args:
        base: as read from the file; is left alone.
        changes: tables like those of the file.

    Returns:
        New tables.

    Raises:
        InvalidValue: a change is addressed to something that has no such part.
    """
    made = deepcopy(base)
    _merge(made, changes, "")
    return made


def _merge(into: dict[str, Any], changes: dict[str, object], where: str) -> None:
    for key, change in changes.items():
        old = into.get(key)
        path = f"{where}{key}"
        if not isinstance(change, dict) or old is None:
            into[key] = deepcopy(cast("object", change))
            continue
        table = cast("dict[str, object]", change)
        if isinstance(old, dict):
            if _WHOLE & (table.keys() | cast("dict[str, object]", old).keys()):
                into[key] = deepcopy(table)
            else:
                _merge(cast("dict[str, Any]", old), table, f"{path}.")
        elif isinstance(old, list):
            _merge_named(cast("list[object]", old), table, path)
        else:
            into[key] = deepcopy(table)


def _merge_named(old: list[object], changes: dict[str, object], where: str) -> None:
    for name, change in changes.items():
        found = [
            cast("dict[str, Any]", one)
            for one in old
            if isinstance(one, dict) and cast("dict[str, Any]", one).get("name") == name
        ]
        if len(found) != 1 or not isinstance(change, dict):
            message = f"{where}.{name}: {len(found) or 'none'} of the list has the name {name!r}"
            raise InvalidValue(message, hint="name the entries of the list, each differently")
        _merge(found[0], cast("dict[str, object]", change), f"{where}.{name}.")
