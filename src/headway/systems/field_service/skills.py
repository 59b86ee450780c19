"""Skills: what technicians can do, and requests ask for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


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
