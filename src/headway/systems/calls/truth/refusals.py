"""How reasons begin of leads that ended because their rows are somebody else's."""

from __future__ import annotations

from headway.contract.views import JobView
from headway.core.state import State

NOT_OURS = "NOT_OURS"
"""The row said so when the call was about to be made."""
RELEASED = "RELEASED"
"""The row went back to the older system before anything had begun."""
AUTHOR = "[calls.migration]"
"""Stands on the trail."""


def is_elsewhere(view: JobView) -> bool:
    """Whether a job ended because somebody else had its row, and not because of its lead."""
    if view.state is State.DEAD:
        return view.reason.startswith(NOT_OURS)
    if view.state is not State.CANCELLED:
        return False
    cancels = [note for note in view.trail if note.what == "cancel"]
    return bool(cancels) and cancels[-1].reason.startswith(RELEASED)
