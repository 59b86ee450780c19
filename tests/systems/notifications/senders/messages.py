"""Messages sent by the tests."""

from __future__ import annotations

from typing import Any

from headway.runtime.settings_table import read_table
from headway.systems.notifications.sender import Message
from headway.systems.notifications.settings import NotificationSettings, SendersTable


def read_senders(written: dict[str, Any]) -> SendersTable:
    """Read the table [notifications.senders] as a server does."""
    return read_table("notifications", NotificationSettings, {"senders": written}).senders


def message(to: str, **more: Any) -> Message:
    """Return a message in which every field has a different value."""
    given: dict[str, Any] = {
        "id": "0190a1b2-0000-7000-8000-000000000001",
        "channel": "email",
        "to": to,
        "title": "Your parcel",
        "text": "It comes today.",
        "html": None,
        "data": {"parcel": 7},
        "priority": "normal",
        "category": "delivery",
        "expires_at": None,
        "unsubscribe_url": None,
    }
    return Message(**given | more)
