"""Where a request stands, read from its job: the job is the record, and there is no other."""

from __future__ import annotations

from enum import StrEnum

from headway.contract.operate import Verb
from headway.contract.views import JobView, RunView
from headway.core.state import State


class Status(StrEnum):
    """Where a request stands."""

    DISPATCHING = "dispatching"
    """It is being offered, or soon will be."""
    ASSIGNED = "assigned"
    """Somebody has accepted it, or a dispatcher gave it to him."""
    PENDING = "pending"
    """Nobody takes it; dispatchers were alerted."""
    COMPLETED = "completed"
    CANCELLED = "cancelled"


STATES: dict[Status, tuple[State, ...]] = {
    Status.DISPATCHING: (
        State.SCHEDULED,
        State.WAITING,
        State.PARKED,
        State.RUNNING,
        State.AWAITING,
    ),
    Status.ASSIGNED: (State.AWAITING,),
    Status.PENDING: (State.DEAD,),
    Status.COMPLETED: (State.SUCCEEDED,),
    Status.CANCELLED: (State.CANCELLED,),
}
"""The states in which a job of this status can be."""


def status_of(job: JobView) -> Status:
    """Where a request stands."""
    match job.state:
        case State.DEAD:
            return Status.PENDING
        case State.SUCCEEDED:
            return Status.COMPLETED
        case State.CANCELLED:
            return Status.CANCELLED
        case _ if job.cancel_requested:
            # It ends so, whatever its run or a signal says.
            return Status.CANCELLED
        case State.AWAITING if acceptor(job):
            return Status.ASSIGNED
        case _:
            return Status.DISPATCHING


def acceptor(job: JobView) -> str:
    """Who has accepted it; empty while nobody has."""
    return job.cascade.accepted if job.cascade is not None else ""


def dispatched_at(job: JobView) -> int:
    """When it came, or was dispatched again or assigned last; for a job with its trail."""
    again = (one.at for one in job.trail if one.what.startswith(Verb.RETRY))
    return max(again, default=job.created_at)


def is_open(job: JobView) -> bool:
    """Whether somebody is asked, and has not answered."""
    return job.state is State.AWAITING and not acceptor(job) and not job.cancel_requested


def last_run(job: JobView) -> RunView | None:
    """The run of the last claim."""
    return next((one for one in job.runs if one.run == job.run), None)


def asked_now(job: JobView) -> str:
    """Whose answer is awaited; empty if nobody's is."""
    run = last_run(job)
    return run.candidate if run is not None and is_open(job) else ""


def ref_of(job: JobView) -> str:
    """The reference of the last run."""
    return f"{job.id}:{job.run}"


def run_of(ref: str) -> tuple[str, int]:
    """The job and the run of a reference that this system made."""
    job, _, run = ref.rpartition(":")
    return job, int(run)
