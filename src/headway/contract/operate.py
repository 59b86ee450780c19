"""An operator's moves on jobs; each is on the trail with who, when and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from headway.core.gates.spec import GateUse


class Verb(StrEnum):
    """What an operator may do with a job."""

    CANCEL = "cancel"
    """Queued: cancelled at once. Running or awaiting: asked for. Final: refused."""
    RETRY = "retry"
    """Dead or cancelled: a new life, also with edited arguments. Else: refused."""
    RUN_NOW = "run_now"
    """Queued: due at once; every gate still holds. Else: refused."""
    EDIT = "edit"
    """Queued: priority, due time, arguments, stage and gates, candidates. Else: refused."""
    SUCCEED = "succeed"
    """Not final: succeeded, its permits given back. Final: refused."""
    KILL = "kill"
    """Not final: dead, its permits given back. Final: refused."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    """What to change; None leaves it.

    Attributes:
        priority: 0 to 4294967295, smaller first.
        due_at: milliseconds UTC.
        args: a JSON object, UTF-8.
        stage: where the job goes on; without `gates` with those that it has.
        gates: what it asks for from now on, resolved; it moves to the flow that they make.
        candidates: of a cascade, who is left to be asked, in this order; with none left it is
            exhausted at once. A move with these is refused for a job that is no cascade.
    """

    priority: int | None = None
    due_at: int | None = None
    args: bytes | None = None
    stage: str | None = None
    gates: tuple[GateUse, ...] | None = None
    candidates: tuple[str, ...] | None = None


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
    """The verb was applied."""
    ASKED = "asked"
    """The job is held; it ends when its run or its deadline says so."""
    REFUSED = "refused"
    """The verb does not apply to its state; nothing was written."""
    UNKNOWN = "unknown"
    """There is no job of this id."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ActReply:
    """The result of the move on one job, in the order of the request."""

    id: str
    answer: Acted
    state: str | None
