"""A job in the words of this system."""

from __future__ import annotations

from dataclasses import dataclass

from headway.contract.views import JobView
from headway.systems.lanes.status import Status, status_of


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneJob:
    """A job in the words of this system.

    Attributes:
        job_id: the engine's id, a UUID.
        key: the job_id that it was enqueued with, if that was no UUID; else null.
        payload: what the handler is given.
        max_attempts: after so many it is dead.
        run: of the last pull; 0 if it was never pulled.
        due_at: when it is due, also of a retry.
        reason: of its end, or of its last failure.
        error: of the last attempt that failed.
        result: what its worker said when it acknowledged it.
    """

    job_id: str
    key: str | None
    status: Status
    state: str
    lane: str
    type: str
    payload: bytes
    attempts: int
    max_attempts: int
    run: int
    due_at: int
    created_at: int
    finished_at: int | None
    reason: str
    error: str
    result: bytes | None


def lane_job(job: JobView) -> LaneJob:
    """Return a job as this system shows it."""
    return LaneJob(
        job_id=job.id,
        key=job.key,
        status=status_of(job),
        state=str(job.state),
        lane=job.lane,
        type=job.kind,
        payload=job.args,
        attempts=job.attempt,
        max_attempts=job.policy.retry.attempts,
        run=job.run,
        due_at=job.due_at,
        created_at=job.created_at,
        finished_at=job.finished_at,
        reason=job.reason,
        error=job.error,
        result=job.result,
    )
