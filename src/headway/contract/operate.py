"""An operator's moves on jobs; each is on the trail with who, when and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verb(StrEnum):
    """What an operator may do with a job."""

    CANCEL = "cancel"
    """Queued: cancelled at once. Running or awaiting: asked for. Final: refused."""
    RETRY = "retry"
    """Dead or cancelled: a new life, also with edited arguments. Else: refused."""
    RUN_NOW = "run_now"
    """Queued: due at once; every gate still holds. Else: refused."""
    EDIT = "edit"
    """Queued: priority, due time, arguments. Else: refused."""
    SUCCEED = "succeed"
    """Not final: succeeded, its permits given back. Final: refused."""
    KILL = "kill"
    """Not final: dead, its permits given back. Final: refused."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    """What to change; None leaves it."""

    priority: int | None = None
    due_at: int | None = None
    args: bytes | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ActRequest:
    """One move on up to 1000 jobs.

    Attributes:
        request: a random id; a repeat answers what the first did.
        ids: the jobs.
        verb: what to do.
        edit: for edit and retry.
        author: who.
        reason: why.
    """

    request: str
    ids: tuple[str, ...]
    verb: Verb
    edit: Edit = Edit()
    author: str
    reason: str = ""


class Acted(StrEnum):
    """The answer for one job."""

    DONE = "done"
    ASKED = "asked"
    """The job is held; it ends when its run or its deadline says so."""
    REFUSED = "refused"
    """The verb does not apply to its state; nothing was written."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class ActReply:
    """What became of the move on one job, in the order of the request."""

    id: str
    answer: Acted
    state: str | None
