"""Vonage's words for where a call stands."""

from __future__ import annotations

from collections.abc import Mapping

from headway.systems.telephony.voice import CallStatus

CALLS: Mapping[str, CallStatus] = {
    "started": CallStatus.QUEUED,
    "ringing": CallStatus.RINGING,
    "answered": CallStatus.IN_PROGRESS,
    "human": CallStatus.IN_PROGRESS,
    "machine": CallStatus.IN_PROGRESS,
    "completed": CallStatus.COMPLETED,
    "busy": CallStatus.BUSY,
    "timeout": CallStatus.NO_ANSWER,
    "unanswered": CallStatus.NO_ANSWER,
    "failed": CallStatus.FAILED,
    "rejected": CallStatus.FAILED,
    "cancelled": CallStatus.CANCELED,
}

PASSED_OVER = frozenset({"disconnected", "input", "record", "transfer", "notify", "payment"})
"""Words for what happens within a call."""
