"""Operators' actions on jobs; each is recorded in the trail with its author, time and reason."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from headway.core.gates.spec import GateUse
from headway.core.state import State


class Verb(StrEnum):
    """What an operator may do with a job."""

    CANCEL = "cancel"
    """Queued: cancelled at once. Running or awaiting: requested. Final: refused."""
    RETRY = "retry"
    """Dead or cancelled: runs again, optionally with new arguments. Otherwise: refused."""
    RUN_NOW = "run_now"
    """Queued: due at once; gates still apply. Otherwise: refused."""
    EDIT = "edit"
    """Queued: changes priority, due time, arguments, stage, gates, candidates. Else: refused."""
    SUCCEED = "succeed"
    """Not final: succeeds and returns its permits. Final: refused."""
    KILL = "kill"
    """Not final: becomes dead and returns its permits. Final: refused."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    """What to change; None leaves a field unchanged.

    Attributes:
        priority: 0 to 4294967295; lower numbers start first.
        due_at: milliseconds UTC.
        args: a JSON object, UTF-8.
        stage: stage in which the job continues; without `gates`, it keeps its gates.
        gates: its gates from now on, resolved; the job moves to the flow that they define.
        candidates: of a cascade, the candidates left to try, in this order; if none are left, it
            is exhausted at once. Refused for a job that is not a cascade.
        if_run: refused unless this is the number of the job's last run.
        if_args: refused unless these are the job's arguments.
    """

    priority: int | None = None
    due_at: int | None = None
    args: bytes | None = None
    stage: str | None = None
    gates: tuple[GateUse, ...] | None = None
    candidates: tuple[str, ...] | None = None
    if_run: int | None = None
    if_args: bytes | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ActRequest:
    """One action on up to 1000 jobs.

    Attributes:
        request: random id; a repeated request returns the reply to the first.
        edit: changes, for edit and retry.
        states: refused for a job in another state; empty for any.
    """

    request: str
    ids: tuple[str, ...]
    verb: Verb
    edit: Edit = Edit()
    states: tuple[State, ...] = ()
    author: str
    reason: str = ""


class Acted(StrEnum):
    """The result for one job."""

    DONE = "done"
    """The verb was applied."""
    ASKED = "asked"
    """Requested: the job ends when its run ends or its deadline passes."""
    REFUSED = "refused"
    """Not possible in the job's state, or a condition does not hold; nothing was written."""
    UNKNOWN = "unknown"
    """There is no job with this id."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ActReply:
    """The result for one job, in the order of the request."""

    id: str
    answer: Acted
    state: str | None
