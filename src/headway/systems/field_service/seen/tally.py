"""The tally: how offers ended, in all processes together."""

from __future__ import annotations

from enum import StrEnum

from headway.runtime.timing import Timing
from headway.systems.directory.database import Directory, Schema
from headway.systems.directory.tally import Tally as AnyTally

SCHEMA = Schema(name="field_service_seen", package="headway.systems.field_service.seen.migrations")
OFFER = "offer"


class OfferEnd(StrEnum):
    """How an offer ended."""

    ACCEPTED = "accepted"
    DECLINED = "declined"
    MISSED = "missed"
    """Whoever was to be asked could not be reached."""
    TIMEOUT = "timeout"
    WITHDRAWN = "withdrawn"
    """By a dispatcher, who may have given the request to somebody."""


class Tally(AnyTally):
    """How offers ended."""

    def __init__(self, directory: Directory, timing: Timing) -> None:
        """Has counted nothing.

        Args:
            directory: where all processes add theirs up.
            timing: for the pauses.
        """
        super().__init__(directory, timing, "field_service_tally")

    def ended(self, end: OfferEnd) -> None:
        """Counts an offer that has ended; waits for nothing, and never fails."""
        self.happened(OFFER, end)
