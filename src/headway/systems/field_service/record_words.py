"""The words that technicians and users are described with."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from headway.core.errors import InvalidValue
from headway.core.naming import check_name
from headway.systems.field_service.records import MAX_NAME, MAX_SKILL
from headway.systems.field_service.skills import skill_key


def _name(text: str) -> str:
    return check_name("it", text.strip())


def _word(text: str) -> str:
    key = skill_key(check_name("it", text))
    # Some letters become several without their case.
    if not 0 < len(key) <= 2 * MAX_SKILL:
        message = "it says nothing" if not key else "it is too long"
        raise InvalidValue(message)
    return text.strip()


PersonName = Annotated[str, Field(min_length=1, max_length=MAX_NAME), AfterValidator(_name)]
"""Somebody's name: up to 200 characters."""

Word = Annotated[str, Field(min_length=1, max_length=MAX_SKILL), AfterValidator(_word)]
"""A skill or a role: up to 64 characters."""


def not_null(given: dict[str, Any]) -> dict[str, Any]:
    """Lets the fields of a change pass that say something.

    Raises:
        InvalidValue: one is to be null.
    """
    for name, value in given.items():
        if value is None:
            message = f"{name} cannot be null"
            raise InvalidValue(message, hint="leave it out to keep it")
    return given
