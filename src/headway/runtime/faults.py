"""Faults: a validator's errors, reworded for the user.

Pydantic's paths contain parts of its own: tags of unions, names of models and functions. A fault
has the path within the input, what is allowed there, and the value that was passed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from headway.core.duration import format_duration
from headway.core.errors import HeadwayError

MOST_FAULTS = 100
"""Maximum number of faults reported for one request."""
MOST_SHOWN = 60
"""Maximum number of characters shown of a value."""
MOST_TEXT = 400
"""Maximum number of characters in the description of a fault."""

_Part = str | int
Path = tuple[_Part, ...]

_SECRET = re.compile(r"(?i)secret|token|password|signature|credential|authorization|private")
_INTERNAL = re.compile(r"[\[(]|^(?:constrained|lax-or-strict|json-or-python|is-instance)-|Body$")
_TYPES: Mapping[str, str] = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
    "path_type": "text",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "dataclass_type": "an object",
}
"""By error type: the expected type."""
_BOUNDS: Mapping[str, str] = {
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
    "finite_number": "a finite number",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "string_pattern_mismatch": "text that matches {pattern}",
    "int_parsing_size": "a smaller number",
}
"""By error type: the expected range or form of the value."""
_PLAIN: Mapping[str, str] = {
    "missing": "it is missing",
    "extra_forbidden": "there is no such field",
    "string_too_short": "it should have at least {min_length} characters",
    "string_too_long": "it should have at most {max_length} characters",
    "too_short": "it should have at least {min_length} items, and has {actual_length}",
    "too_long": "it should have at most {max_length} items",
    "union_tag_not_found": "the field {discriminator} is missing",
    "union_tag_invalid": "the field {discriminator} should be one of {expected_tags}",
    "string_unicode": "it should be text in UTF-8",
    "json_invalid": "it is not JSON: {error}",
    "invalid_key": "a key of it should be text",
}
"""By error type: what is wrong, if it is neither the type nor the range of a value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InputFault:
    """A path in the input, and what is wrong there.

    Attributes:
        path: keys and indexes, from the outermost one.
        what: what is wrong, and what is allowed.
        hint: how to fix it; may be empty.
        kind: the validator's name for the error, such as "missing".
    """

    path: Path
    what: str
    hint: str = ""
    kind: str = ""
    value: object = field(default=None, repr=False, compare=False)

    @property
    def where(self) -> str:
        """The path as one line, such as `body.gates.0.amount`."""
        return ".".join(str(one)[:80] for one in self.path)

    @property
    def said(self) -> str:
        """What is wrong, and the hint in brackets when there is one."""
        return f"{self.what} ({self.hint})" if self.hint else self.what


def faults(
    errors: Sequence[Mapping[str, Any]],
    root: object = None,
    *,
    shows: Callable[[Path], bool] = lambda _: True,
    toml: bool = False,
) -> list[InputFault]:
    """Convert a validator's errors to faults.

    Args:
        errors: errors of one validation, as pydantic lists them.
        root: the input; for a request, its body.
        shows: returns whether the value at a path may be shown. Values whose names suggest a
            secret are never shown.
        toml: whether the input is TOML, with keys and tables instead of fields and objects.

    Returns:
        At most 100 faults, in the order of the errors; the alternative types of a union are joined
        into one fault.
    """
    placed = [(_path(one, root), one) for one in errors[: 10 * MOST_FAULTS]]
    found: dict[Path, list[Mapping[str, Any]]] = {}
    for path, one in placed:
        found.setdefault(path, []).append(one)
    deeper = {path[:end] for path in found for end in range(len(path))}
    read: list[InputFault] = []
    for path, there in found.items():
        others = [one for one in there if one["type"] not in _TYPES]
        if not others and path in deeper:
            continue  # the value has the type of another alternative of the union
        given = _given(path, there[0], toml=toml) if shows(path) else ""
        if others:
            whats = [_what(one, given, toml=toml) for one in others]
        else:
            wanted = dict.fromkeys(_words(_TYPES[one["type"]], toml=toml) for one in there)
            whats = [(f"it should be {' or '.join(wanted)}{given}", "")]
        kind, value = str((others or there)[0]["type"]), there[0].get("input")
        read += [
            InputFault(path=path, what=what, hint=hint, kind=kind, value=value)
            for what, hint in dict.fromkeys(whats)
        ]
    return read[:MOST_FAULTS]


def sentence(found: Sequence[InputFault]) -> str:
    """Return the first faults as one line."""
    return "; ".join(f"{one.where}: {one.said}" if one.path else one.said for one in found[:3])


def _path(error: Mapping[str, Any], root: object) -> Path:
    """Return the path of an error within the input, without the validator's own parts."""
    loc = cast("Path", tuple(error.get("loc", ())))
    head = loc[:1] if loc and loc[0] in {"body", "query", "path", "header"} else ()
    rest = loc[len(head) :]
    if head in {(), ("body",)} and root is not None:
        names_child = error["type"] in {"missing", "extra_forbidden"}
        target = error.get("input")
        last: Path = rest[-1:] if names_child else ()
        steps = rest[: len(rest) - len(last)]
        if error["type"] == "extra_forbidden":
            paths = _paths(root, steps, lambda one: isinstance(one, dict) and rest[-1] in one)
        else:
            paths = _paths(root, steps, lambda one: one is target)
        # Of equally long paths, the one along the later steps.
        best = max(reversed([*paths]), key=len, default=None)
        if best is not None:
            return (*head, *best, *last)
    return (*head, *(one for one in rest if not _INTERNAL.search(str(one))))


def _paths(value: object, steps: Sequence[_Part], fits: Callable[[Any], bool]) -> Iterator[Path]:
    """Yield all paths from a value, along some of the steps in their order, to a fitting value."""
    if fits(value):
        yield ()
    for place, step in enumerate(steps[:24]):
        held: object
        if isinstance(value, dict) and step in value:
            held = cast("dict[_Part, object]", value)[step]
        elif isinstance(value, list) and isinstance(step, int):
            items = cast("list[object]", value)
            if not 0 <= step < len(items):
                continue
            held = items[step]
        else:
            continue
        yield from ((step, *path) for path in _paths(held, steps[place + 1 :], fits))


def _what(error: Mapping[str, Any], given: str, *, toml: bool) -> tuple[str, str]:
    """Return what is wrong, and how to fix it."""
    kind = str(error["type"])
    context = cast("Mapping[str, Any]", error.get("ctx") or {})
    cause = context.get("error")
    if isinstance(cause, HeadwayError):
        return cause.message[:MOST_TEXT], cause.hint[:MOST_TEXT]
    if kind in {"value_error", "assertion_error"}:
        return str(cause or "it is not valid")[:MOST_TEXT], ""
    if kind in {"too_short", "too_long"} and isinstance(error.get("input"), str):
        # A text with a validator of its own, whose length is checked as that of any value.
        kind = f"string_{kind}"
    said = f"it is not valid{given}"
    if kind in _BOUNDS:
        if isinstance(error.get("input"), str) and str(error["input"])[-1:].isalpha():
            # A duration written with a unit, which was read as milliseconds.
            context = {
                name: format_duration(bound, parts=6) if isinstance(bound, int) else bound
                for name, bound in context.items()
            }
        said = f"it should be {_BOUNDS[kind].format(**context)}{given}"
    elif kind in _PLAIN:
        said = _words(_PLAIN[kind], toml=toml).format(**context)
    return said[:MOST_TEXT], ""


def _given(path: Path, error: Mapping[str, Any], *, toml: bool) -> str:
    """Return the part of the message that shows the value, cut to `MOST_SHOWN` characters."""
    if "input" not in error:
        return ""
    value = cast("object", error["input"])
    shown = _words("an object", toml=toml) if isinstance(value, dict) else _shown(path, value)
    return f", and is {shown}"


def _words(text: str, *, toml: bool) -> str:
    return text.replace("an object", "a table").replace("field", "key") if toml else text


def _shown(path: Path, value: object) -> str:
    hidden = path[:1] == ("header",) or any(_SECRET.search(str(one)) for one in path)
    match value:
        case None | bool() | int() | float() if not hidden:
            text = json.dumps(value)
            return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
        case str() if not hidden:
            cut = value[:MOST_SHOWN]
            return json.dumps(cut) if len(value) <= MOST_SHOWN else f"{json.dumps(cut)}…"
        case str() | bytes():
            return f"a text of {len(value)} characters"
        case list() | tuple():
            return "a list"
        case _:
            return "another value"
