"""Twilio's words for where a call or a message stands."""

from __future__ import annotations

from collections.abc import Mapping

from headway.systems.telephony.texts import TextStatus
from headway.systems.telephony.voice import CallStatus

CALLS: Mapping[str, CallStatus] = {
    "queued": CallStatus.QUEUED,
    "initiated": CallStatus.QUEUED,
    "ringing": CallStatus.RINGING,
    "answered": CallStatus.IN_PROGRESS,
    "in-progress": CallStatus.IN_PROGRESS,
    "completed": CallStatus.COMPLETED,
    "busy": CallStatus.BUSY,
    "no-answer": CallStatus.NO_ANSWER,
    "failed": CallStatus.FAILED,
    "canceled": CallStatus.CANCELED,
}

MESSAGES: Mapping[str, TextStatus] = {
    "accepted": TextStatus.QUEUED,
    "scheduled": TextStatus.QUEUED,
    "queued": TextStatus.QUEUED,
    "sending": TextStatus.QUEUED,
    "sent": TextStatus.SENT,
    "delivered": TextStatus.DELIVERED,
    "read": TextStatus.DELIVERED,
    "undelivered": TextStatus.UNDELIVERED,
    "failed": TextStatus.FAILED,
    "canceled": TextStatus.FAILED,
}
"""A message that was read had been delivered."""
