"""The checks of `headway doctor`, and their findings."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from headway.cli.terminal import rounded_duration


class Health(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warning"
    """It works, but needs attention."""
    PROBLEM = "problem"
    """Something does not work, or will not for long."""


class Finding(NamedTuple):
    """The finding of one check.

    Attributes:
        subject: What was checked, in one or two words.
        hint: How to fix it; "" if there is nothing to fix.
    """

    subject: str
    health: Health
    found: str
    hint: str = ""


def ok(subject: str, found: str) -> Finding:
    """Return a finding without a fault."""
    return Finding(subject, Health.OK, found)


def warning(subject: str, found: str, hint: str) -> Finding:
    """Return a finding that needs attention."""
    return Finding(subject, Health.WARNING, found, hint)


def problem(subject: str, found: str, hint: str) -> Finding:
    """Return a finding that has to be fixed."""
    return Finding(subject, Health.PROBLEM, found, hint)


TOLERATED_MS, LONG_MS = 1_000, 60_000
"""Tolerated difference of two clocks, and the difference above which it is a problem."""


def check_server_clock(offset_ms: int) -> Finding:
    """Check that this machine's clock agrees with the server's, which the store uses.

    Args:
        offset_ms: Offset of the server's clock; positive if it is ahead.
    """
    off = abs(offset_ms)
    if off <= TOLERATED_MS:
        return ok("server clock", "agrees with this machine's clock")
    way = "ahead of" if offset_ms > 0 else "behind"
    found = f"the server's clock is {rounded_duration(off)} {way} this machine's"
    hint = "jobs fall due by the server's clock: let NTP or chrony set both"
    return (problem if off > LONG_MS else warning)("server clock", found, hint)
