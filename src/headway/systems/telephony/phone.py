"""Phone numbers in E.164, validated with the numbering plans of the package `phonenumbers`."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated

from phonenumbers import (
    NumberParseException,
    PhoneNumberFormat,
    ValidationResult,
    format_number,
    is_possible_number_with_reason,
    is_valid_number,
    parse,
)
from pydantic import AfterValidator, Field

from headway.core.errors import InvalidValue

_SHAPE = r"^\+[1-9][0-9]{6,14}$"
_HINT = "write + and the country, then the digits: +14155550100"
_REASONS = {
    ValidationResult.IS_POSSIBLE: "",
    ValidationResult.TOO_SHORT: "too short for its country",
    ValidationResult.TOO_LONG: "too long for its country",
    ValidationResult.IS_POSSIBLE_LOCAL_ONLY: "too short for its country",
}


def check_phone(what: str, text: str) -> str:
    """Validate and return a phone number in E.164.

    Args:
        what: subject of the error message.
        text: `+`, the country code, then the digits; no spaces.

    Raises:
        InvalidValue: it is not in E.164, or its country has no numbers of this length.
    """
    why = _why_not(text)
    if why:
        message = f"{what} is {text[:40]!r}, which is {why}"
        raise InvalidValue(message, hint=_HINT)
    return text


def _why_not(text: str) -> str:
    """Return why a text is not a valid phone number; empty if it is one."""
    if re.fullmatch(_SHAPE, text, re.ASCII) is None:
        return "not a number in E.164"
    try:
        reason = is_possible_number_with_reason(number := parse(text))
    except NumberParseException:
        return "a number with an unknown country code"
    if format_number(number, PhoneNumberFormat.E164) != text:
        return "not a number in E.164"
    return _REASONS.get(reason, "of a length that does not exist in its country")


def is_phone(text: str) -> bool:
    """Return whether a text is a phone number that `check_phone` accepts."""
    return not _why_not(text)


def can_be_assigned(phone: str) -> bool:
    """Return whether a number in E.164 is in a range that its country assigns."""
    return is_valid_number(parse(phone))


Phone = Annotated[
    str,
    AfterValidator(partial(check_phone, "it")),
    Field(
        examples=["+14155550100"],
        description="E.164.",
        # For readers of the schema; requests are validated by `check_phone`.
        json_schema_extra={"pattern": _SHAPE},
    ),
]
"""A phone number in E.164, in the body of a request."""
