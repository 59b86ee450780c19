"""Skills and roles: the words that technicians, users and requests are described with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from headway.core.errors import InvalidValue
from headway.core.naming import check_name
from headway.systems.field_service.records import MAX_SKILL


def skill_key(skill: str) -> str:
    """A skill as it is compared: without its case and the space around it."""
    return " ".join(skill.casefold().split())


def held(skills: Iterable[str]) -> str:
    """Skills as one text, in which each is found with what stands around it."""
    return "".join(f"\n{one}" for one in skills) + "\n"


def lacking(has: Iterable[str], wanted: Sequence[str]) -> list[str]:
    """The skills that are wanted and not there.

    Args:
        has: of a technician, in any case.
        wanted: of a request, in any case.

    Returns:
        Those that lack, as they were wanted.
    """
    known = {skill_key(one) for one in has}
    return [one for one in wanted if skill_key(one) not in known]


def _word(text: str) -> str:
    key = skill_key(check_name("it", text))
    # Some letters become several without their case.
    if not 0 < len(key) <= 2 * MAX_SKILL:
        message = "it says nothing" if not key else "it is too long"
        raise InvalidValue(message)
    return text.strip()


Word = Annotated[str, Field(min_length=1, max_length=MAX_SKILL), AfterValidator(_word)]
"""A skill or a role: up to 64 characters."""
