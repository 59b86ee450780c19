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
    """Whether a job ended because somebody else had its row, and not because of its lead.

    Args:
        view: with its trail, which tells why one was cancelled while it ran.
    """
    if view.state not in {State.DEAD, State.CANCELLED}:
        return False
    if view.reason.startswith((NOT_OURS, RELEASED)):
        return True
    cancels = [note for note in view.trail if note.what.startswith("cancel ")]
    released = bool(cancels) and cancels[-1].reason.startswith(RELEASED)
    return view.state is State.CANCELLED and released and not _has_called(view)


def _has_called(view: JobView) -> bool:
    """Whether a job that was cancelled had begun its call, as far as its runs were read."""
    last = view.runs[-1] if view.runs else None
    return last is not None and last.handed_at is not None and not last.error.startswith(NOT_OURS)
