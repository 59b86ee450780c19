"""Map Python to Lua names: of translated modules, and of those written by hand.

A handwritten module declares its Python in its head:

    -- python: stores.ledger.tables.EntryTable, stores.ledger.step.keep_key as keep

A class or module stands for all its functions that the file defines; what the file does not define
is translated. `as` gives a function another name: with a dot, it is a function of the server; `=`
is the first argument unchanged; and `.` is a field in a request.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tools.lua.lua import lua_name
from tools.lua.source import Type

_PYTHON = re.compile(r"^-- python: (.*)$", re.MULTILINE)
_DEFINED = re.compile(r"^(?:function )?([A-Z]\w*\.\w+)\b", re.MULTILINE)


class Names:
    """Lua names of Python functions."""

    def __init__(self, rules: Mapping[str, str], by_hand: Mapping[str, str]) -> None:
        """Take the Lua module of each translated Python module, and each other module's text."""
        self.rules = rules
        self.files = {table_of(file): file for file in [*rules.values(), *by_hand]}
        self.defined = {one for text in by_hand.values() for one in _DEFINED.findall(text)}
        self.places: dict[str, tuple[str, str]] = {}
        for file, text in by_hand.items():
            for one in ", ".join(_PYTHON.findall(text)).split(", "):
                python, _, name = one.partition(" as ")
                self.places[f"headway.{python}"] = (table_of(file), name)

    def of(self, function: Any) -> tuple[str, bool]:
        """Return a function's Lua name, or "" if it has none, and whether it is handwritten."""
        whole = _whole(function)
        table, other = self.places.get(whole) or self.places.get(whole.rpartition(".")[0], ("", ""))
        if other == "=" or "." in other:
            return other, True
        name = lua_name(other or function.__name__.strip("_"))
        file = self.rules.get(function.__module__)
        if table and (not file or f"{table}.{name}" in self.defined):
            return f"{table}.{name}", True
        return f"{table_of(file)}.{name}" if file else "", False

    def is_single(self, kind: Type) -> bool:
        """Return whether a record is a table of the ledger, which is a module and not passed on."""
        return getattr(kind.record, "_is_protocol", False) and _whole(kind.record) in self.places

    def is_passed(self, method: Any) -> bool:
        """Return whether a method gets its object: not if a module names it, besides its class."""
        return _whole(method) not in self.places

    def mentioned(self, lines: Iterable[str], own: str) -> str:
        """Return the modules whose tables are used in code."""
        code = "\n".join(line for line in lines if not line.lstrip().startswith("--"))
        tables = {*re.findall(r"\b([A-Z]\w*)\.", code)} - {own}
        return ", ".join(sorted(self.files[one] for one in tables if one in self.files))


def _whole(function: Any) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def table_of(file: str) -> str:
    """Return the table of a Lua module: "engine.gate_cache" has GateCache."""
    return file.rpartition(".")[2].title().replace("_", "")
