"""Lua as text: expressions with their precedence, and indented lines."""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from itertools import count
from typing import NamedTuple

from tools.lua.source import BOOL, Type

Bind = IntEnum("Bind", "OR AND COMPARE CONCAT ADD MULTIPLY UNARY ATOM")
"""Precedence of Lua's operators, lowest first."""

_RESERVED = {*keyword.kwlist, *("end", "function", "local", "nil", "repeat", "then", "until")}
_RESERVED |= {"do", "elseif", "ipairs", "math", "next", "pairs", "string", "table", "type"}


class Value(NamedTuple):
    """An expression, its type in Python, and its precedence."""

    text: str
    type: Type
    binds: int = Bind.ATOM

    def at(self, least: int) -> str:
        """Return the text as an operand that needs at least this precedence."""
        return self.text if self.binds >= least else f"({self.text})"


class Lines:
    """The indented lines of a function, and the names used in it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0
        self.used: set[str] = set()

    def write(self, *texts: str) -> None:
        every = (line for text in texts for line in text.split("\n"))
        self.lines += ["  " * self.depth + line for line in every]

    @contextmanager
    def inside(self, head: str, end: str = "end") -> Iterator[None]:
        self.write(head)
        self.depth += 1
        yield
        self.depth -= 1
        if end:
            self.write(end)

    @contextmanager
    def captured(self, deeper: int = 0) -> Iterator[list[str]]:
        """Collect the lines written within the context in a separate list."""
        kept, self.lines = self.lines, []
        self.depth += deeper
        yield self.lines
        self.depth -= deeper
        self.lines = kept

    def fresh(self, stem: str, first: str = "", *, into: str = "") -> str:
        """Start a variable, `into` ("local x" or "x") or a new one, and return its name."""
        head = into or f"local {self.temporary(stem)}"
        if first or head.startswith("local "):
            self.write(f"{head} = {first}" if first else head)
        return head.removeprefix("local ")

    def temporary(self, stem: str) -> str:
        names = (f"{stem}{number}" if number > 1 else stem for number in count(1))
        name = next(one for one in names if one not in self.used and one not in _RESERVED)
        self.used.add(name)
        return name


def lua_name(name: str) -> str:
    return f"{name}_" if name in _RESERVED else name


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"


def braced(parts: Sequence[str]) -> str:
    """Format a table; a long one has a line for each part."""
    line = f"{{ {', '.join(parts)} }}" if parts else "{}"
    if len(line) < 80:
        return line
    text = ",\n".join(parts).replace("\n", "\n  ")
    return f"{{\n  {text},\n}}"


def negated(test: Value) -> Value:
    """Return the negation of a condition, simplified if possible."""
    if test.binds == Bind.COMPARE:
        for sign, other in ((" ~= ", " == "), (" == ", " ~= ")):
            left, found, right = test.text.rpartition(sign)
            if found and "(" not in right:
                return Value(f"{left}{other}{right}", BOOL, Bind.COMPARE)
        if test.text.startswith("#") and test.text.endswith(" > 0"):
            return Value(f"{test.text.removesuffix(' > 0')} == 0", BOOL, Bind.COMPARE)
    return Value(f"not {test.at(Bind.UNARY)}", BOOL, Bind.UNARY)


def shifted(value: Value, by: int) -> Value:
    """Return a number plus or minus one: indexes start at 0 in Python, and at 1 in Lua."""
    if value.text.isdigit():
        return value._replace(text=str(int(value.text) + by))
    undone = f" {'-' if by > 0 else '+'} {abs(by)}"
    if value.text.endswith(undone):
        return value._replace(text=value.text.removesuffix(undone))
    return Value(f"{value.at(Bind.ADD)} {'+' if by > 0 else '-'} {abs(by)}", value.type, Bind.ADD)
