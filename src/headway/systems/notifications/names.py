"""Names that the parts of this system share: channels, lanes, kinds, gates."""

from __future__ import annotations

from enum import StrEnum

NAME = "notifications"
"""The system, its table of the settings, and its context."""

NOTIFICATION = "notification"
"""The kind of the jobs."""


class Channel(StrEnum):
    """A way to reach a recipient."""

    PUSH = "push"
    SMS = "sms"
    EMAIL = "email"
    WEBHOOK = "webhook"
    APPRISE = "apprise"

    @property
    def lane(self) -> str:
        """The lane of notifications that begin with this channel."""
        return f"notify.{self}"

    @property
    def slots(self) -> str:
        """The gate of sends at once; also the one that a provider's 429 closes."""
        return f"notify.{self}.sends"

    @property
    def rate(self) -> str:
        """The gate of the provider's rate."""
        return f"notify.{self}.rate"


class Priority(StrEnum):
    """What is sent first when not all can be."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class Status(StrEnum):
    """Where a notification stands."""

    QUEUED = "QUEUED"
    SENT = "SENT"
    DELIVERED = "DELIVERED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"
    CANCELLED = "CANCELLED"


class Event(StrEnum):
    """What the tally counts, each under a label."""

    OUTCOME = "outcome"
    """A send: its channel, `:`, and a status or one of the words below."""
    LATE = "late"
    """A send begun: its channel, `:`, and the histogram's bucket."""
    LATE_MS = "late_ms"
    """The milliseconds of lateness themselves, by channel."""


BUCKETS_MS = (10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000)
"""Of the histogram of lateness; what is later is in one more."""
LOST, LIMITED, UNAVAILABLE = "answer_lost", "limited", "unavailable"
"""Outcomes that are no status."""
ANSWER_LOST = "sent, answer lost"
"""Why a notification is SENT of which the provider's answer never came."""


def known_as(provider_id: str) -> str:
    """The key under which a delivery event finds its notification."""
    return f"notify:{provider_id}"
