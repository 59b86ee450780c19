"""Outcomes: what becomes of a call, and what then becomes of its lead. One table."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from headway.systems.telephony.voice import CallStatus


class Outcome(StrEnum):
    """What became of a call, or of a lead that was never called."""

    COMPLETED = "COMPLETED"
    """Somebody answered, and the call came to its end."""
    BUSY = "BUSY"
    """The line was busy."""
    NO_ANSWER = "NO_ANSWER"
    """It rang, and nobody answered."""
    FAILED = "FAILED"
    """It could not be put through, or the provider refuses to call this phone."""
    ABORT = "ABORT"
    """It was called off."""
    WEBHOOK_LOST = "WEBHOOK_LOST"
    """No end was reported, and the provider does not know it at the deadline either."""
    NUMBER_UNAVAILABLE = "NUMBER_UNAVAILABLE"
    """The provider would not call from the number; nobody's phone has rung."""
    PRECHECK_FAILED = "PRECHECK_FAILED"
    """A check before the call said no."""


OF_STATUS: Mapping[CallStatus, Outcome] = MappingProxyType(
    {
        CallStatus.COMPLETED: Outcome.COMPLETED,
        CallStatus.BUSY: Outcome.BUSY,
        CallStatus.NO_ANSWER: Outcome.NO_ANSWER,
        CallStatus.FAILED: Outcome.FAILED,
        CallStatus.CANCELED: Outcome.ABORT,
    }
)
"""The outcome of each status in which a call has ended."""

NOT_PLACED = "NOT_PLACED"
"""With this begins the reason of a run whose call was never placed: it is no attempt."""

_WORDS = {str(one): one for one in Outcome} | {
    # Your own table said so when the lead was to be called.
    "NOT_OURS": Outcome.ABORT,
    # The engine's own word: nobody told the end, and nobody was there to ask for it.
    "deadline": Outcome.WEBHOOK_LOST,
}
"""What reasons begin with."""


def reason_of(outcome: Outcome, detail: str = "") -> str:
    """An outcome as it stands in a job's reason."""
    return f"{outcome}: {detail}"[:200] if detail else str(outcome)


def outcome_in(reason: str) -> Outcome | None:
    """The outcome that a reason begins with; None if it begins with none."""
    return _WORDS.get(reason.partition(":")[0].strip())
