"""Names that the parts of this system share: lanes, kinds, gates."""

from __future__ import annotations

NAME = "field_service"
"""The system, its table of the settings, and its context."""

OFFERS = "offers"
"""The lane of the requests themselves, and of their turns."""
AFTER = "offers.after"
"""The lane of what follows from answers and ends."""
RINGS = "rings"
"""The lane of calls and messages."""

OFFER = "offer"
OFFER_TAKEN = "offer_taken"
OFFER_ENDED = "offer_ended"
LOOK_OVER = "offer_look_over"
RING = "ring"
TEXT = "ring_text"
RING_ENDED = "ring_ended"
ALERT = "alert_dispatcher"

LINES = "field.lines"
"""The pool of telephone lines."""

TECHNICIAN = "technician:{candidate}"
"""The lock of the technician who is asked, or has the request."""
CALL_TO = "technician.call:{candidate}"
"""The lock of the call to a technician: held from before he is asked until it has ended."""


def lock_of(technician: str) -> str:
    """The gate of one technician."""
    return f"technician:{technician}"


def call_to(technician: str) -> str:
    """The gate of calls to one technician."""
    return f"technician.call:{technician}"
