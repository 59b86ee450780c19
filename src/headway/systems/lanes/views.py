"""Views of jobs and lanes: statuses instead of the engine's states, and callers' job ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from headway.contract.store import Store
from headway.contract.views import JobsQuery, JobView, LanesQuery, LaneView
from headway.core.check import is_job_id
from headway.core.errors import UnknownJob
from headway.core.state import State
from headway.runtime.latency import LaneLatency, lane_latencies
from headway.server.caller import Caller
from headway.server.finding import bounded_page
from headway.server.service import Service
from headway.server.visibility import visible_job
from headway.systems.jobs import count_queued

PAGES = 4
"""Maximum number of pages of scheduled jobs that are searched for those that wait for a retry."""


class Status(StrEnum):
    """The status of a job in this system."""

    QUEUED = "queued"
    """It waits for its due time, a gate or a worker."""
    PULLED = "pulled"
    """A worker has it, and has not acknowledged it."""
    FAILED = "failed"
    """An attempt failed, and it waits for a retry."""
    DONE = "done"
    DEAD = "dead"
    """Its attempts are used up, or no further one was wanted."""
    CANCELLED = "cancelled"
    """An operator cancelled it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneStatus:
    """A lane: its jobs by status and by state, and its latency next to its target.

    Attributes:
        statuses: number of jobs by status.
        exact: whether `queued` and `failed` are distinguished for all jobs; among very many
            scheduled jobs, some that wait for a retry are counted as queued.
        states: number of jobs by state of the engine, without empty states.
        latency: how long its jobs wait, next to its target.
        concurrency: maximum number of its jobs with workers at once; None for no limit.
        workers: number of live workers that serve it.
        paused: whether it is paused.
    """

    lane: str
    statuses: Mapping[Status, int]
    exact: bool
    states: Mapping[str, int]
    latency: LaneLatency
    concurrency: int | None
    workers: int
    paused: bool


def status_of(job: JobView) -> Status:
    """Return the status of a job."""
    match job.state:
        case State.SCHEDULED if job.attempt:
            return Status.FAILED
        case State.SCHEDULED | State.WAITING | State.PARKED:
            return Status.QUEUED
        case State.RUNNING | State.AWAITING:
            return Status.PULLED
        case State.SUCCEEDED:
            return Status.DONE
        case State.DEAD:
            return Status.DEAD
        case State.CANCELLED:
            return Status.CANCELLED
        case _:
            assert_never(job.state)


async def lane_statuses(
    store: Store,
    names: Sequence[str] | None = None,
    *,
    covers: Callable[[str], bool] = lambda _: True,
) -> tuple[LaneStatus, ...]:
    """Return lanes with their jobs by status, with a few bounded reads per lane.

    Args:
        names: lanes to return; None for the first 200, those with a target first.
        covers: returns whether to return a lane; others do not count towards these 200.

    Returns:
        Lanes ordered by name, or in the order of `names`.
    """
    latencies = await lane_latencies(store, names, covers=covers)
    lanes = await store.read(LanesQuery(names=tuple(one.lane for one in latencies)))
    pairs = zip(lanes, latencies, strict=True)
    return tuple([await _status(store, lane, latency) for lane, latency in pairs])


async def _status(store: Store, lane: LaneView, latency: LaneLatency) -> LaneStatus:
    held = lane.counts
    failed, exact = await _waiting_to_be_retried(store, lane)
    return LaneStatus(
        lane=lane.name,
        statuses={
            Status.QUEUED: max(0, count_queued(lane) - failed),
            Status.PULLED: held.get(State.RUNNING, 0) + held.get(State.AWAITING, 0),
            Status.FAILED: failed,
            Status.DONE: held.get(State.SUCCEEDED, 0),
            Status.DEAD: held.get(State.DEAD, 0),
            Status.CANCELLED: held.get(State.CANCELLED, 0),
        },
        exact=exact,
        states=held,
        latency=latency,
        concurrency=lane.spec.concurrency,
        workers=lane.workers,
        paused=lane.paused,
    )


async def _waiting_to_be_retried(store: Store, lane: LaneView) -> tuple[int, bool]:
    """Return how many jobs wait for a retry, and whether all scheduled ones were examined."""
    scheduled = lane.counts.get(State.SCHEDULED, 0)
    looked = failed = 0
    cursor: str | None = None
    for _ in range(PAGES):
        if looked >= scheduled:
            return failed, True
        query = JobsQuery(
            lane=lane.name,
            states=(State.SCHEDULED,),
            newest=True,
            cursor=cursor,
            limit=min(1_000, scheduled - looked),
        )
        page = await bounded_page(store, query)
        looked += len(page.rows)
        failed += sum(1 for job in page.rows if status_of(job) is Status.FAILED)
        cursor = page.cursor
        if cursor is None:
            return failed, True
    return failed, looked >= scheduled


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneJob:
    """A job, as this system shows it.

    Attributes:
        job_id: the engine's id, a UUID.
        key: job_id with which it was enqueued, if that was not a UUID; otherwise null.
        payload: data for the handler.
        max_attempts: number of attempts after which it is dead.
        run: run number of the last pull; 0 if it was never pulled.
        due_at: when it, or its retry, is due.
        reason: reason for its end or its last failure.
        error: error of the last failed attempt.
        result: result that its worker acknowledged it with.
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


def as_uuid(job_id: str) -> str | None:
    """Return a job_id as the engine's id; None if it is a key."""
    own = job_id.lower()
    return own if is_job_id(own) else None


async def find_id(service: Service, caller: Caller, job_id: str, tenant: str | None = None) -> str:
    """Return the engine's id of a job, without a lookup if the job_id is one.

    Raises:
        UnknownJob: no job that the caller sees has this key.
        Forbidden: the caller may not use the tenant.
    """
    found = as_uuid(job_id)
    return found if found is not None else (await _by_key(service, caller, job_id, tenant)).id


async def find_job(
    service: Service, caller: Caller, job_id: str, tenant: str | None = None
) -> JobView:
    """Return a job with its runs and trail.

    Raises:
        UnknownJob: there is none that the caller sees.
        Forbidden: the caller may not use the tenant.
    """
    return await visible_job(service, caller, await find_id(service, caller, job_id, tenant))


async def _by_key(service: Service, caller: Caller, key: str, tenant: str | None) -> JobView:
    query = JobsQuery(key=key, tenant=caller.tenant(tenant) or "")
    rows = (await service.store.read(query)).rows if "\0" not in key else ()
    if not rows or not caller.sees(rows[0]):
        message = f"there is no job {key[:64]!r}"
        raise UnknownJob(message, hint="a key stays known for seven days after the end of its job")
    return rows[0]
