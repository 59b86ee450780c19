"""The Python that is translated: its source, and the types that its annotations give.

Types decide how an expression is written in Lua: `if jobs` is `#jobs > 0` for a list, `jobs ~= ''`
for text, and `jobs` for a record that may be None. What has no known type is an error.
"""

from __future__ import annotations

import ast
import collections.abc
import importlib
import inspect
import types
from collections import Counter
from dataclasses import MISSING, dataclass, replace
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

_SCALARS = {int: "int", float: "float", str: "str", bool: "bool"}
NOT_GIVEN = inspect.Parameter.empty


class Unsupported(Exception):
    """Python that the translator does not know; the message names file and line."""


@dataclass(frozen=True)
class Type:
    """What the translation needs to know of a value.

    Attributes:
        kind: int, float, str, bool, none, list, dict, set, tuple, record or function.
        parts: of a list its elements, of a dict keys and values, of a function what it returns.
        record: of a record, its class: a dataclass, named tuple, protocol or plain class.
        optional: it may be None.
    """

    kind: str
    parts: tuple[Type, ...] = ()
    record: type[Any] | None = None
    optional: bool = False


BYTES = Type("str", (Type("int"),))
NONE, INT, FLOAT, BOOL, STR = (Type(kind) for kind in ("none", "int", "float", "bool", "str"))


def type_of(hint: Any) -> Type:  # noqa: C901, PLR0911  (one kind after another)
    """The type that an annotation means.

    Raises:
        TypeError: it is none that the translator knows.
    """
    origin, inner = get_origin(hint), get_args(hint)
    if hint is None or hint is type(None):
        return NONE
    if origin in {Union, types.UnionType} and type(None) in inner and len(inner) == 2:
        return replace(type_of(next(one for one in inner if one is not type(None))), optional=True)
    if isinstance(hint, TypeVar):
        return type_of(hint.__bound__)
    if origin is Literal or (isinstance(hint, type) and issubclass(hint, Enum)):
        return STR
    if origin is collections.abc.Callable:
        return Type("function", (type_of(inner[1]),))
    if isinstance(origin, type):
        bases = {"dict": collections.abc.Mapping, "set": collections.abc.Set, "list": object}
        kind = next(kind for kind, base in bases.items() if issubclass(origin, base))
        if origin is tuple and inner[-1] is not ...:
            return Type("tuple", tuple(map(type_of, inner)))
        return Type(kind, tuple(type_of(one) for one in inner if one is not ...))
    if hint is bytes:
        return BYTES
    if hint in _SCALARS:
        return Type(_SCALARS[hint])
    if isinstance(hint, type) and hint.__module__ != "builtins":
        return Type("record", record=hint)
    message = f"the type {hint!r}"
    raise TypeError(message)


@dataclass(eq=False)
class Module:
    """One module: its functions by qualified name, its comments by line, and its values."""

    name: str
    path: Path
    tree: ast.Module
    functions: dict[str, ast.FunctionDef]
    comments: dict[int, str]
    values: dict[str, Any]

    def unsupported(self, node: ast.AST, what: str) -> Unsupported:
        place = f"{self.path}:{getattr(node, 'lineno', 0)}"
        return Unsupported(f"{place}: {what}: {ast.unparse(node)[:80]}")

    def annotation(self, node: ast.expr) -> Type:
        """The type that an annotation within a function means."""
        try:
            return type_of(eval(ast.unparse(node), self.values))  # noqa: S307  (our own source)
        except TypeError as problem:
            raise self.unsupported(node, str(problem)) from None


@cache
def read(name: str) -> Module:
    """A module of Headway, parsed and imported."""
    values = vars(importlib.import_module(name))
    path = Path(values["__file__"])
    text = path.read_text(encoding="utf-8")
    lines = enumerate(map(str.strip, text.splitlines()), 1)
    comments = {line: one.lstrip("# ") for line, one in lines if one.startswith("#")}
    tree = ast.parse(text)
    functions: dict[str, ast.FunctionDef] = {}
    for node in tree.body:
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for one in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(one, ast.FunctionDef):
                functions[prefix + one.name] = one
    return Module(name, path, tree, functions, comments, values)


@cache
def fields_of(record: type[Any]) -> dict[str, tuple[Type, object]]:
    """Type and default of each field; what a factory makes is given as an empty list."""
    defaults: dict[str, object] = dict(getattr(record, "_field_defaults", {}))
    for name, one in getattr(record, "__dataclass_fields__", {}).items():
        factory = [] if one.default_factory is not MISSING else NOT_GIVEN
        defaults[name] = factory if one.default is MISSING else one.default
    hints = get_type_hints(record).items()
    return {
        name: (_known_type(one), defaults.get(name, NOT_GIVEN))
        for name, one in hints
        if get_origin(one) is not ClassVar
    }


def _known_type(hint: Any) -> Type:
    """The type of a field; what no rule looks at may be of any."""
    try:
        return type_of(hint)
    except TypeError:
        return Type("unknown")


@cache
def parameters_of(function: Any) -> tuple[tuple[str, Type, object], ...]:
    """Name, type and default of each parameter but `self`."""
    hints = get_type_hints(function)
    given = inspect.signature(function).parameters.values()
    return tuple(
        (one.name, type_of(hints[one.name]), one.default) for one in given if one.name != "self"
    )


def returned_by(function: Any) -> Type:
    return type_of(get_type_hints(function)["return"])


def names_of(target: ast.AST) -> list[str]:
    """The names that are bound."""
    names = [one for one in ast.walk(target) if isinstance(one, ast.Name)]
    return [one.id for one in names if isinstance(one.ctx, ast.Store)]


def declarations(function: ast.FunctionDef) -> dict[ast.stmt, set[str]]:
    """The variables to declare at each statement: in the innermost block that mentions them all.

    Lua's scopes are blocks, where Python's are functions.
    """
    every = _mentions(function)
    assignments = (ast.Assign, ast.AnnAssign, ast.AugAssign)
    bound = [node for node in ast.walk(function) if isinstance(node, assignments)]
    targets = (one for node in bound for one in getattr(node, "targets", None) or [node.target])
    left = {name for target in targets for name in names_of(target)}
    left -= {one.arg for one in [*function.args.args, *function.args.kwonlyargs]}
    found: dict[ast.stmt, set[str]] = {}

    def visit(block: list[ast.stmt]) -> None:
        for node in block:
            for name in ("body", "orelse"):
                visit(getattr(node, name, []))
        counts = [(node, _mentions(node)) for node in block]
        for name in sorted(left):
            if sum(one[name] for _, one in counts) == every[name]:
                first = next(node for node, one in counts if one[name])
                found.setdefault(first, set()).add(name)
                left.discard(name)

    visit(function.body)
    return found


def _mentions(node: ast.AST) -> Counter[str]:
    return Counter(one.id for one in ast.walk(node) if isinstance(one, ast.Name))
