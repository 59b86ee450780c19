"""Validation of payloads by JSON schemas, in time linear in the payload for each keyword."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, cast

from jsonschema import Draft202012Validator, ValidationError, validators
from jsonschema.exceptions import SchemaError
from pydantic_core import SchemaError as PatternError
from pydantic_core import SchemaValidator, core_schema

from headway.core.errors import InvalidValue


def read_schema(schema: dict[str, Any]) -> Draft202012Validator:
    """Return the validator of a schema.

    Raises:
        InvalidValue: it is not valid, refers to another document, or has a pattern that is not
            supported.
    """
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        message = f"it is not a valid JSON schema: {error.message}"[:300]
        raise InvalidValue(message) from None
    # jsonschema changes to the validator that a $schema names, with Python's expressions, wherever
    # it enters a schema that has one: at any reference to "#", too.
    own = {name: value for name, value in schema.items() if name != "$schema"}
    for keyword, value in _members(own):
        if keyword == "$schema" and isinstance(value, str):
            message = "$schema is not supported within a schema"
            raise InvalidValue(message, hint="use it at the top only, or leave it out")
        if keyword in {"$ref", "$dynamicRef"} and isinstance(value, str) and value[:1] != "#":
            message = "it refers to another document"
            raise InvalidValue(message, hint='use only references within it, such as "#/$defs/…"')
        if keyword == "patternProperties":
            hint = "use propertyNames with a pattern, and additionalProperties"
            message = "patternProperties is not supported"
            raise InvalidValue(message, hint=hint)
        if keyword == "pattern" and isinstance(value, str):
            _matcher(value)
    return _Validator(own)


def _members(value: object) -> Iterator[tuple[str, object]]:
    """Yield the names and values of all objects in a schema."""
    if isinstance(value, dict):
        for name, inner in cast("dict[str, object]", value).items():
            yield name, inner
            yield from _members(inner)
    elif isinstance(value, list):
        for inner in cast("list[object]", value):
            yield from _members(inner)


@lru_cache(maxsize=1024)
def _matcher(pattern: str) -> SchemaValidator:
    """Return a matcher without backtracking, unlike Python's, which would block the server.

    Raises:
        InvalidValue: the pattern needs backtracking, or is too large.
    """
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except PatternError as error:
        why = re.sub("^(error|SchemaError): ", "", str(error).strip().rpartition("\n")[2].strip())
        message = f"the pattern {pattern[:80]!r} is not supported: {why}"[:300]
        hint = (
            "use the syntax of Rust's regex, without look-around and backreferences, and maxLength "
            "instead of a large repetition"
        )
        raise InvalidValue(message, hint=hint) from None


def _pattern(
    validator: Any,  # noqa: ANN401  (incompletely typed)
    pattern: str,
    instance: object,
    _: object,
) -> Iterator[ValidationError]:
    text = validator.is_type(instance, "string")
    if text and not _matcher(pattern).isinstance_python(instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _unique_items(
    validator: Any,  # noqa: ANN401  (incompletely typed)
    unique: object,
    instance: object,
    _: object,
) -> Iterator[ValidationError]:
    """Compare the items by their hashes: jsonschema compares each object with all others."""
    if unique and validator.is_type(instance, "array"):
        items = cast("list[object]", instance)
        if len(set(map(_hashable, items))) < len(items):
            yield ValidationError(f"{instance!r} has non-unique elements")


def _hashable(value: object) -> object:
    """Return a value that is equal for equal JSON values: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, dict):
        members = cast("dict[str, object]", value).items()
        return "object", frozenset((name, _hashable(inner)) for name, inner in members)
    if isinstance(value, list):
        return "array", tuple(map(_hashable, cast("list[object]", value)))
    return isinstance(value, bool), value


_OWN = {"pattern": _pattern, "uniqueItems": _unique_items}
_Validator = cast("Any", validators).extend(Draft202012Validator, _OWN)
