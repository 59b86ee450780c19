"""The translated Python: its source, and the types in its annotations."""

from __future__ import annotations

import ast
import collections.abc
import importlib
import inspect
import types
from dataclasses import MISSING, dataclass, replace
from enum import Enum
from functools import cache
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

NOT_GIVEN = inspect.Parameter.empty


class Unsupported(Exception):
    """Python that the translator does not support; the message names file and line."""


@dataclass(frozen=True)
class Type:
    """The type of a value, as far as the translation needs it.

    Attributes:
        kind: int, float, str, bool, none, list, dict, set, tuple, record, function or unknown.
        parts: elements of a list, keys and values of a dict, or the result of a function.
        record: class of a record: a dataclass, named tuple, protocol or plain class.
        optional: whether it may be None.
    """

    kind: str
    parts: tuple[Type, ...] = ()
    record: type[Any] | None = None
    optional: bool = False

    @property
    def may_be_none(self) -> bool:
        return self.optional or self.kind == "none"


BYTES = Type("str", (Type("int"),))
NONE, INT, FLOAT, BOOL, STR = (Type(kind) for kind in ("none", "int", "float", "bool", "str"))
_PLAIN = {int: INT, float: FLOAT, str: STR, bool: BOOL, bytes: BYTES, None: NONE, type(None): NONE}
_TABLES = {collections.abc.Mapping: "dict", collections.abc.Set: "set", object: "list"}
Parameters = dict[str, tuple[Type, object]]
"""Type and default of each field of a record, or parameter of a function."""


def type_of(hint: Any) -> Type:  # noqa: PLR0911  (one kind after another)
    """Return the type of an annotation; unknown also if its elements may be None."""
    origin, inner = get_origin(hint), get_args(hint)
    if isinstance(hint, TypeVar):
        return type_of(hint.__bound__)
    if origin in {Union, types.UnionType} and type(None) in inner and len(inner) == 2:
        return replace(type_of(next(one for one in inner if one is not type(None))), optional=True)
    if origin is Literal or (isinstance(hint, type) and issubclass(hint, Enum)):
        return STR
    if origin is collections.abc.Callable:
        return Type("function", (type_of(inner[1]),))
    if isinstance(origin, type):
        parts = tuple(type_of(one) for one in inner if one is not ...)
        if any(one.may_be_none for one in parts):
            return Type("unknown")
        kind = next(kind for base, kind in _TABLES.items() if issubclass(origin, base))
        return Type("tuple" if origin is tuple and inner[-1] is not ... else kind, parts)
    is_record = isinstance(hint, type) and hint.__module__ != "builtins"
    return _PLAIN.get(hint) or Type("record" if is_record else "unknown", record=hint)


class Module:
    """A module of Headway: functions by qualified name, comments by line, and values."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values = vars(importlib.import_module(name))
        with open(self.values["__file__"], encoding="utf-8") as file:
            text = file.read()
        lines = enumerate(map(str.strip, text.splitlines()), 1)
        self.comments = {line: one.lstrip("# ") for line, one in lines if one.startswith("#")}
        self.tree = ast.parse(text)
        classes = [
            (f"{one.name}.", one.body) for one in self.tree.body if isinstance(one, ast.ClassDef)
        ]
        self.functions = {
            prefix + one.name: one
            for prefix, body in [("", self.tree.body), *classes]
            for one in body
            if isinstance(one, ast.FunctionDef)
        }

    def unsupported(self, node: ast.AST, what: str) -> Unsupported:
        place = f"{self.values['__file__']}:{getattr(node, 'lineno', 0)}"
        return Unsupported(f"{place}: {what}: {ast.unparse(node)[:80]}")

    def annotation(self, node: ast.expr) -> Type:
        """Return the type of an annotation within a function."""
        found = type_of(eval(ast.unparse(node), self.values))  # noqa: S307  (our own source)
        if found.kind == "unknown":
            raise self.unsupported(node, "a type")
        return found


read = cache(Module)


@cache
def fields_of(record: type[Any]) -> Parameters:
    """Return type and default of each field of a record; a factory counts as an empty list."""
    defaults: dict[str, object] = dict(getattr(record, "_field_defaults", {}))
    for name, one in getattr(record, "__dataclass_fields__", {}).items():
        factory = [] if one.default_factory is not MISSING else NOT_GIVEN
        defaults[name] = factory if one.default is MISSING else one.default
    return {
        name: (type_of(one), defaults.get(name, NOT_GIVEN))
        for name, one in get_type_hints(record).items()
        if get_origin(one) is not ClassVar
    }


@cache
def parameters_of(function: Any) -> Parameters:
    """Return type and default of each parameter except `self`."""
    hints, given = get_type_hints(function), inspect.signature(function).parameters.values()
    return {one.name: (type_of(hints[one.name]), one.default) for one in given if one.name in hints}


def returned_by(function: Any) -> Type:
    return type_of(get_type_hints(function)["return"])


def names_in(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
