"""Lua as text: expressions with their precedence, and indented lines."""

from __future__ import annotations

import ast
import keyword
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from itertools import count
from typing import NamedTuple

from tools.lua.source import BOOL, INT, STR, Type

Bind = IntEnum("Bind", "KEY OR AND COMPARE CONCAT ADD MULTIPLY UNARY ATOM")
"""Precedence of Lua's operators, lowest first; between the brackets of a key, any will do."""

_RESERVED = {*keyword.kwlist, *("end", "function", "local", "nil", "repeat", "then", "until")}
_RESERVED |= {"do", "elseif", "ipairs", "math", "next", "pairs", "string", "table", "type"}


class Value(NamedTuple):
    """An expression, its type in Python, its precedence, and the elements of a tuple.

    In an f-string or a template, `{value:ADD}` is an operand that needs at least this precedence.
    `{value:KEY}` is the key of a table: a tuple is joined to one text. `{value:PLACE}` is a place
    in a list, counted from 1 as in Lua.
    """

    text: str
    type: Type
    binds: int = Bind.ATOM
    elements: tuple[Value, ...] = ()

    @property
    def is_key(self) -> bool:
        return {one.type for one in self.elements or [self]} <= {INT, STR}

    def __format__(self, spec: str) -> str:
        if spec == "PLACE":
            return str(int(self.text) + 1) if self.text.isdigit() else f"{self:ADD} + 1"
        if spec == "KEY" and self.elements:
            return " .. '\\0' .. ".join(f"{one:ADD}" for one in self.elements)
        return self.text if self.binds >= Bind[spec or "KEY"] else f"({self.text})"


class Lines:
    """The indented lines of a function, the types of its variables so far, and all names in it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.types: dict[str, Type] = {}
        self.used: set[str] = set()

    def write(self, *texts: str) -> None:
        self.lines += [line for text in texts for line in text.split("\n")]

    @contextmanager
    def inside(self, head: str, end: str = "end") -> Iterator[None]:
        """Write a block; its variables are unknown after it."""
        before, self.lines, known = self.lines + head.split("\n"), [], dict(self.types)
        yield
        self.lines = before + [f"  {line}" for line in self.lines] + [end] * bool(end)
        self.types = known

    def apart(self, each: Callable[[ast.expr], Value], node: ast.expr) -> tuple[Value, list[str]]:
        """Translate an expression; return it and the lines before it, which are not written yet."""
        before, self.lines = self.lines, []
        value = each(node)
        lines, self.lines = self.lines, before
        return value, lines

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
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"


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
    return Value(f"not {test:UNARY}", BOOL, Bind.UNARY)
