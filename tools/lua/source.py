"""The translated Python: its source, and the types in its annotations."""

from __future__ import annotations

import ast
import collections.abc
import importlib
import inspect
import types
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

NOT_GIVEN = inspect.Parameter.empty


class Unsupported(Exception):
    """Python that the translator does not support; the message names file and line."""


@dataclass(frozen=True)
class Type:
    """The type of a value, as far as the translation needs it.

    Attributes:
        kind: a builtin type's name, or none, values (of a dict), record, function or unknown.
        parts: elements of a list, keys and values of a dict, or the result of a function.
        record: class of a record: a dataclass, named tuple, protocol or plain class.
        optional: whether it may be None.
    """

    kind: str
    parts: tuple[Type, ...] = ()
    record: type[Any] | None = None
    optional: bool = False


INT, FLOAT, BOOL, STR, BYTES = map(Type, ("int", "float", "bool", "str", "bytes"))
NONE = Type("none", optional=True)
_PLAIN = {int: INT, float: FLOAT, str: STR, bool: BOOL, bytes: BYTES, None: NONE, type(None): NONE}
_TABLES = {collections.abc.Mapping: "dict", collections.abc.Set: "set", object: "list"}


def type_of(hint: Any) -> Type:
    """Return the type of an annotation; unknown also if its elements may be None."""
    hint = getattr(hint, "__bound__", hint)
    origin, inner = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType} and type(None) in inner and len(inner) == 2:
        return replace(type_of(next(one for one in inner if one is not type(None))), optional=True)
    if origin is Literal or (isinstance(hint, type) and issubclass(hint, Enum)):
        return STR
    if origin is collections.abc.Callable:
        return Type("function", (type_of(inner[1]),))
    if isinstance(origin, type):
        parts = tuple(type_of(one) for one in inner if one is not ...)
        if any(one.optional for one in parts):
            return Type("unknown")
        kind = next(kind for base, kind in _TABLES.items() if issubclass(origin, base))
        return Type("tuple" if origin is tuple and inner[-1] is not ... else kind, parts)
    is_record = isinstance(hint, type) and hint.__module__ != "builtins"
    return _PLAIN.get(hint) or Type("record" if is_record else "unknown", record=hint)


@cache
class Module:
    """A module of Headway: functions by qualified name, comments by line, and values."""

    def __init__(self, name: str) -> None:
        self.name, self.python = name, importlib.import_module(name)
        self.values, text = vars(self.python), inspect.getsource(self.python)
        lines = enumerate(map(str.strip, text.splitlines()), 1)
        self.comments = {line: one.lstrip("# ") for line, one in lines if one.startswith("#")}
        self.tree = ast.parse(text)
        owners = [self.tree, *(one for one in self.tree.body if isinstance(one, ast.ClassDef))]
        self.functions = {
            f"{getattr(owner, 'name', '')}.{one.name}".strip("."): one
            for owner in owners
            for one in owner.body
            if isinstance(one, ast.FunctionDef)
        }

    def unsupported(self, node: ast.AST, what: str) -> Unsupported:
        place = f"{self.values['__file__']}:{getattr(node, 'lineno', 0)}"
        return Unsupported(f"{place}: {what}: {ast.unparse(node)[:80]}")


@cache
def types_in(owner: Any) -> dict[str, Type]:
    """Return the types of a record's fields, or of a function's parameters and "return"."""
    hints = get_type_hints(owner).items()
    return {name: type_of(one) for name, one in hints if get_origin(one) is not ClassVar}


@cache
def defaults_of(function: Any) -> dict[str, object]:
    """Return each parameter's default, or NOT_GIVEN; a record's factory counts as an empty list."""
    given = inspect.signature(function).parameters.values()
    defaults = {one.name: one.default for one in given if one.name != "self"}
    return {name: [] if str(one) == "<factory>" else one for name, one in defaults.items()}


def names_in(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
