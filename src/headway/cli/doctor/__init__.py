"""What `headway doctor` looks at, and a finding: one thing that was looked at, and how it is."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from headway.cli.terminal import rough


class Health(StrEnum):
    """How a thing is."""

    OK = "ok"
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


def ok(subject: str, found: str) -> Finding:
    """Return a finding that is as it should be."""
    return Finding(subject, Health.OK, found)


def warning(subject: str, found: str, hint: str) -> Finding:
    """Return a finding that needs attention."""
    return Finding(subject, Health.WARNING, found, hint)


def problem(subject: str, found: str, hint: str) -> Finding:
    """Return a finding that has to be fixed."""
    return Finding(subject, Health.PROBLEM, found, hint)


TOLERATED_MS, LONG_MS = 1_000, 60_000
"""How far two clocks may be apart, and from where on it is a problem."""


def look_at_server_clock(offset_ms: int) -> Finding:
    """Return whether this machine's clock and the server's, which is the store's, show the same.

    Args:
        offset_ms: of the server's clock; above zero if it is ahead.
    """
    off = abs(offset_ms)
    if off <= TOLERATED_MS:
        return ok("server clock", "shows the same as this machine's")
    way = "ahead of" if offset_ms > 0 else "behind"
    found = f"the server's clock is {rough(off)} {way} this machine's"
    hint = "jobs fall due by the server's clock: let NTP or chrony set both"
    return (problem if off > LONG_MS else warning)("server clock", found, hint)
