"""The tally: how often things happened to calls that no job tells, in all processes together."""

from __future__ import annotations

from enum import StrEnum

from headway.runtime.timing import Timing
from headway.systems.directory.database import Directory, Schema
from headway.systems.directory.tally import Tally as AnyTally

SCHEMA = Schema(name="calls_seen", package="headway.systems.calls.seen.migrations")


class Event(StrEnum):
    """What is counted; behind each, what its label is."""

    OUTCOME = "outcome"
    """An attempt ended; its outcome."""
    WEBHOOK_ORPHAN = "webhook_orphan"
    """A webhook was of no call that is known; its provider."""
    WEBHOOK_LATE = "webhook_late"
    """A webhook came when its call was settled; its number."""
    WEBHOOK_TWICE = "webhook_twice"
    """A webhook came again; its number."""
    WEBHOOK_LOST = "webhook_lost"
    """The end of a call was learnt by asking, or not at all; its number."""
    INTAKE = "intake"
    """A request that brought leads was answered; no label."""
    INTAKE_FAILED = "intake_failed"
    """One of these was answered with 500 or more; no label."""
    REPORT_FAILED = "report_failed"
    """A result could not be reported to its caller; no label."""


class Tally(AnyTally):
    """How often things happened to calls."""

    def __init__(self, directory: Directory, timing: Timing) -> None:
        """Has counted nothing.

        Args:
            directory: where all processes add theirs up; it is told which table it needs.
            timing: for the pauses.
        """
        directory.needs(SCHEMA)
        super().__init__(directory, timing, "calls_tally")
