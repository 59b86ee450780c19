"""What `headway doctor` looks at, and a finding: one thing that was looked at, and how it is."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Health(StrEnum):
    """How a thing is."""

    WELL = "well"
    WARNING = "warning"
    """It works, but needs attention."""
    PROBLEM = "problem"
    """Something does not work, or will not for long."""


class Finding(NamedTuple):
    """What was found about one thing.

    Attributes:
        subject: what was checked, in one or two words.
        hint: how to fix it; empty where nothing has to be.
    """

    subject: str
    health: Health
    found: str
    hint: str = ""


def well(subject: str, found: str) -> Finding:
    """A thing that is as it should be."""
    return Finding(subject, Health.WELL, found)


def warning(subject: str, found: str, hint: str) -> Finding:
    """A thing that needs attention."""
    return Finding(subject, Health.WARNING, found, hint)


def problem(subject: str, found: str, hint: str) -> Finding:
    """A thing that has to be fixed."""
    return Finding(subject, Health.PROBLEM, found, hint)
