"""Views of jobs."""

from __future__ import annotations

from dataclasses import dataclass

from headway.contract.views.query import Page, Query
from headway.core.cascade import Cascade
from headway.core.gates.spec import GateUse
from headway.core.job import JobPolicy
from headway.core.state import State


@dataclass(frozen=True, kw_only=True, slots=True)
class RunView:
    """One run of a job.

    Attributes:
        run: its number, from 1, never reset.
        attempt: of its life, from 1.
        stage: of a kind with stages.
        worker: its random id.
        claimed_at: when it started.
        handed_at: when it handed over; None if it did not.
        ended_at: when it was settled; None if it lives.
        outcome: a word: succeeded, failed, snoozed, lost, …; empty if it lives.
        error: that this run ended with; empty if it had none.
        permits: each gate it took, and the member chosen, or "" where it is no pool.
        blocked_ms: of its wait, the time behind gates.
        due_at: when it was due.
        candidate: of a cascade.
        keys: under which signals find it beside its reference, by name.
    """

    run: int
    attempt: int
    stage: str
    worker: str
    claimed_at: int
    handed_at: int | None
    ended_at: int | None
    outcome: str
    error: str
    permits: dict[str, str]
    blocked_ms: int
    due_at: int
    candidate: str = ""
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class NoteView:
    """One line of a job's trail: an operator's move, a note, a signal."""

    at: int
    what: str
    author: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class JobView:
    """A job and its whole record.

    Attributes:
        state: as stored.
        shown: as shown: `ready` and `blocked` stand for a waiting one where that is known.
        gates: those of its stage, shared ones first.
        run: of the last claim; 0 if never.
        attempt: used in this life, the present one included.
        life: 1, and one more for each operator's retry.
        reason: of its end, or of its last failure.
        error: of its last run that failed; empty once a run died without an error, or handed over.
        runs: oldest first; empty in listings that do not ask for them.
        trail: the last hundred lines, oldest first; empty in listings that do not ask for it.
        in_doubt: it awaits, and its worker died before its handler returned.
        seq: its arrival: it grows from job to job, with gaps.
        (the others: as in NewJob and RunView)
    """

    id: str
    kind: str
    lane: str
    tenant: str
    subject: str | None
    stage: str
    state: State
    shown: str
    priority: int
    due_at: int
    created_at: int
    expires_at: int | None
    finished_at: int | None
    deadline_at: int | None
    args: bytes
    result: bytes | None
    progress: bytes | None
    key: str | None
    gates: tuple[GateUse, ...]
    policy: JobPolicy
    run: int
    attempt: int
    life: int
    reason: str
    error: str
    parked_at: str | None
    worker: str | None
    cancel_requested: bool
    in_doubt: bool
    entry: str | None
    fired_at: int | None
    cascade: Cascade | None
    seq: int
    runs: tuple[RunView, ...] = ()
    trail: tuple[NoteView, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class JobQuery(Query[JobView | None]):
    """One job with its runs and trail."""

    id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class JobsQuery(Query[Page[JobView]]):
    """Jobs by any of these; oldest arrival first (`newest` turns it round).

    Attributes:
        ids: only these, in this order.
        key: with `tenant`, the job that has this key.
        subject: with `tenant`, the jobs about this.
        lane: only of this lane.
        tenant: only of this tenant; None for any.
        kind: only of this kind.
        worker: only running and awaiting jobs of this worker, in the order in which jobs start;
            no other filter applies, and there is one page.
        states: only in these.
        runs: whether to add each job's runs.
        trail: whether to add each job's trail.
        newest: newest arrival first.
        cursor: of the page before.
        limit: 1 to 1000.
    """

    ids: tuple[str, ...] | None = None
    key: str | None = None
    subject: str | None = None
    lane: str | None = None
    tenant: str | None = None
    kind: str | None = None
    worker: str | None = None
    states: tuple[State, ...] = ()
    runs: bool = False
    trail: bool = False
    newest: bool = False
    cursor: str | None = None
    limit: int = 100
