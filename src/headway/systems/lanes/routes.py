"""Routes: enqueue, pull, ack, fail and extend; lanes and jobs; dead jobs and retries."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Query, Request, Response
from pydantic import Field

from headway.contract.claims import BeatRequest, Claimed
from headway.contract.operate import Acted, ActReply, Edit, Verb
from headway.contract.outcomes import Verdict
from headway.contract.views import JobQuery, JobsQuery, JobView
from headway.core.errors import InvalidValue, LeaseLost, UnknownJob
from headway.core.job import DEFAULT_POLICY
from headway.core.retry import Backoff
from headway.core.state import State
from headway.runtime.worker.worker_options import check_lease
from headway.server.access import Observer, Reader, Sender, needs
from headway.server.bodies.base import Name, QueryModel, TenantName
from headway.server.bodies.jobs import EditBody, FilterBody, JobBody
from headway.server.bodies.work import AnyOutcome, DeadBody, FailedBody, RunningBody, SucceededBody
from headway.server.caller import Caller, Permission
from headway.server.finding import bounded_page
from headway.server.long_polling.claiming import PollReply
from headway.server.paging import PageQuery, RepeatKey, check_number_cursor
from headway.server.replies import answer, page_model, reply, reply_model
from headway.server.routes.claims import answer_pull
from headway.server.routes.moves import Move, Operator, edit_of, move_matching, move_named
from headway.server.routes.settlements import settle_runs
from headway.server.routing import TheService, router
from headway.server.sending import make_job, send_jobs
from headway.server.service import Service
from headway.systems.lanes.bodies import (
    AckBody,
    EnqueueBody,
    ExtendBody,
    FailBody,
    PullBody,
    PulledBody,
    RetryBody,
)
from headway.systems.lanes.views import (
    LaneJob,
    LaneStatus,
    Status,
    as_uuid,
    find_id,
    find_job,
    lane_job,
    lane_statuses,
    status_of,
)

ROUTES = router("system: lanes", operations="lanes_", any_type=True)
Puller = Annotated[Caller, needs(Permission.WORK)]

POLICY = replace(DEFAULT_POLICY, retry=Backoff(attempts=5, base="10s", factor=8, cap="1h"))
"""Policy of jobs whose type sets none: five attempts, which survive an outage of half an hour."""

ENQUEUED = reply(
    "Enqueued",
    "The job that now exists.",
    job_id=(str, "The engine's id."),
    created=(bool, "Whether this request created it."),
)


@ROUTES.post(
    "/enqueue",
    summary="Create a job",
    status_code=201,
    response_model=ENQUEUED,
    response_description="The job was created.",
    responses={200: {"model": ENQUEUED, "description": "The job already existed."}},
)
async def enqueue(
    body: EnqueueBody,
    service: TheService,
    caller: Sender,
) -> Response:
    """Create a job; when this returns, it is stored.

    A repeat with the same `job_id` creates no second job until seven days after the end of the
    first; with another lane, type or payload it is a conflict (409).
    """
    uuid = None if body.job_id is None else as_uuid(body.job_id)
    # Without validation: each value is already validated as the same type.
    made = JobBody.model_construct(
        kind=body.type,
        args=body.payload,
        lane=body.lane,
        due=body.due,
        tenant=body.tenant,
        id=uuid,
        key=body.job_id if uuid is None else None,
    )
    job = await make_job(service, caller, made)
    if job.policy == DEFAULT_POLICY:
        job = job.changed(policy=POLICY)
    (sent,) = await send_jobs(service, [job], caller=caller)
    shown = {"job_id": sent.id, "created": sent.created}
    return answer(shown, 201 if sent.created else 200)


PULLED_JOB = reply(
    "PulledJob",
    "A job that is yours until the lease ends.",
    job_id=(str, "The engine's id."),
    run=(int, "Run number, needed for the acknowledgement."),
    lane=(str, "Lane that it waited in."),
    type=(str, "Type of the job; it names the handler."),
    payload=(dict[str, Any], "Data for the handler."),
    attempt=(int, "1 for the first."),
    tenant=(str, "Customer that the job runs for; may be empty."),
    due_at=(int, "When it was due."),
)
PULLED = reply(
    "LanesPulled",
    "The result of a pull.",
    jobs=(
        list[PULLED_JOB],
        "Jobs, in the order in which to run them; empty if none arrived within the wait.",
    ),
    now=(int, "Current time of the store."),
    lease_until=(
        int | None,
        "When the lease of these jobs ends without a heartbeat; null without jobs.",
    ),
)


@ROUTES.post("/pull", summary="Pull jobs", response_model=PULLED)
async def pull(body: PullBody, request: Request, service: TheService, caller: Puller) -> Response:
    """Pull up to `max` jobs; if there are none, wait up to `wait` for one.

    A job is yours until `lease_until`, which `/extend` moves. A job that is not acknowledged by
    then is returned and given to another worker. If you disconnect while you wait, nothing is
    pulled.
    """
    return await answer_pull(service, caller, body, request, _pulled_reply)


def _pulled_reply(pulled: PollReply) -> dict[str, object]:
    return {
        "jobs": [_pulled_job(one) for one in pulled.jobs],
        "now": pulled.now,
        "lease_until": pulled.lease_until if pulled.jobs else None,
    }


def _pulled_job(one: Claimed) -> dict[str, object]:
    return {
        "job_id": one.id,
        "run": one.run,
        "lane": one.lane,
        "type": one.kind,
        "payload": msgspec.Raw(one.args),
        "attempt": one.attempt,
        "tenant": one.tenant,
        "due_at": one.due_at,
    }


SETTLED = reply(
    "LanesSettled",
    "The result of an acknowledgement.",
    job_id=(str, "The engine's id."),
    answer=(
        Literal["done", "already", "cancelled"],
        '"already": this run was settled before, or the job is done, and nothing was written; '
        '"cancelled": the job was cancelled in the meantime, and stays cancelled.',
    ),
    status=(Status | None, "Current status; null if the job is no longer kept."),
    due_at=(int | None, "When the job is due again; null if it is not."),
)
EXTENDED = reply(
    "LanesExtended",
    "An extended lease.",
    job_id=(str, "The engine's id."),
    lease_until=(int, "When the lease ends without another heartbeat."),
    now=(int, "Current time of the store."),
    cancel=(bool, "Whether its cancellation was requested: stop, and report a failure."),
)

_STOP = "its lease has ended, or it was never pulled with this run and worker; stop"


@ROUTES.post("/ack", summary="Acknowledge a job", response_model=SETTLED)
async def ack(body: AckBody, service: TheService, caller: Puller) -> Response:
    """Acknowledge a job. If it is already done, even by another worker, this is a no-op.

    Raises:
        LeaseLost: the job is not done, and no longer this worker's; nothing was written.
    """
    job = await find_id(service, caller, body.job_id, body.tenant)
    outcome = SucceededBody(outcome="succeeded", job=job, run=body.run, result=body.result)
    return await _settle(service, caller, body, outcome)


@ROUTES.post("/fail", summary="Report a failed attempt", response_model=SETTLED)
async def fail(body: FailBody, service: TheService, caller: Puller) -> Response:
    """Report that an attempt failed; the job is retried later, or dead after the last attempt.

    Raises:
        InvalidValue: both `dead` and `after` are given.
        LeaseLost: the job is no longer this worker's; nothing was written.
    """
    if body.dead and body.after is not None:
        message = "`dead` and `after` cannot be combined"
        raise InvalidValue(message, hint="pass one of them")
    job = await find_id(service, caller, body.job_id, body.tenant)
    outcome: AnyOutcome
    if body.dead:
        reason = next(iter(body.error.splitlines()), "")[:200] or "failed"
        outcome = DeadBody(outcome="dead", job=job, run=body.run, reason=reason, error=body.error)
    else:
        outcome = FailedBody(
            outcome="failed", job=job, run=body.run, error=body.error, after=body.after
        )
    return await _settle(service, caller, body, outcome)


@ROUTES.post("/extend", summary="Extend a lease", response_model=EXTENDED)
async def extend(body: ExtendBody, service: TheService, caller: Puller) -> Response:
    """Extend the lease of a job, and of all others that the worker has pulled.

    Raises:
        LeaseLost: the job is no longer this worker's; stop, another worker may have it.
    """
    job = await find_id(service, caller, body.job_id, body.tenant)
    run = (job, body.run)
    progress = RunningBody(job=job, run=body.run, progress=body.progress).encoded_progress()
    reply = await service.store.beat(
        BeatRequest(
            worker=caller.worker(body.worker),
            running=(run,),
            lease_ms=check_lease("the lease", body.lease),
            name=body.worker,
            progress=() if progress is None else ((*run, progress),),
        )
    )
    if run in reply.lost:
        raise LeaseLost(_not_yours(body), hint=_STOP)
    return answer(
        {
            "job_id": job,
            "lease_until": reply.lease_until,
            "now": reply.now,
            "cancel": run in reply.cancel,
        }
    )


async def _settle(
    service: Service, caller: Caller, body: PulledBody, outcome: AnyOutcome
) -> Response:
    """Settle a run.

    Raises:
        LeaseLost: the run is no longer live, unless it acknowledges a job that is already done.
    """
    (verdict,) = await settle_runs(service, caller, body.worker, [outcome])
    found = await service.store.read(JobQuery(id=outcome.job))
    if verdict is Verdict.LOST:
        if not (isinstance(outcome, SucceededBody) and _is_done(caller, found)):
            raise LeaseLost(_not_yours(body), hint=_STOP)
        verdict = Verdict.ALREADY
    status = None if found is None else status_of(found)
    due_at = found.due_at if found is not None and status is Status.FAILED else None
    return answer(
        {"job_id": outcome.job, "answer": str(verdict), "status": status, "due_at": due_at}
    )


def _is_done(caller: Caller, job: JobView | None) -> bool:
    return job is not None and caller.sees(job) and job.state is State.SUCCEEDED


def _not_yours(body: PulledBody) -> str:
    return f"run {body.run} of the job {body.job_id[:64]!r} is not {body.worker[:64]!r}'s"


VIEWS = router("system: lanes", operations="lanes_")

LANES = reply(
    "LaneStatuses",
    "Lanes, with their jobs by status.",
    lanes=(list[reply_model(LaneStatus)], "Lanes, by name."),
)


class _LanesParams(QueryModel):
    """Which lanes."""

    lane: list[Name] = Field(
        default=[], max_length=200, description="Only lanes with this name; repeatable."
    )


class JobParams(QueryModel):
    """Whose job."""

    tenant: TenantName | None = Field(
        default=None, description="Tenant of the job, if the job_id is not a UUID."
    )


@VIEWS.get("/lanes", summary="List lanes", response_model=LANES)
async def status(
    params: Annotated[_LanesParams, Query()],
    service: TheService,
    caller: Observer,
) -> Response:
    """List lanes: how many jobs have each status, and how long they wait next to the target."""
    caller.every_tenant()
    for name in params.lane:
        caller.check_lane(name)
    found = await lane_statuses(service.store, params.lane or None, covers=caller.covers)
    return answer({"lanes": found})


@VIEWS.get("/jobs/{job_id:path}", summary="Get a job", response_model=reply_model(LaneJob))
async def job(
    job_id: str,
    params: Annotated[JobParams, Query()],
    service: TheService,
    caller: Reader,
) -> Response:
    """Return a job by the engine's id, or by the job_id with which it was enqueued."""
    return answer(lane_job(await find_job(service, caller, job_id, params.tenant)))


RETRIED_ONE = reply(
    "LanesRetriedOne",
    "The result for one job.",
    job_id=(str, "The engine's id."),
    answer=(Acted, 'Result. "refused": the job is not dead.'),
)
RETRIED = reply(
    "LanesRetried",
    "The result of a retry.",
    done=(int, "Number of jobs that wait again, with all their attempts."),
    refused=(int, "Number of jobs that are not dead."),
    unknown=(int, "Number of ids for which the caller sees no job."),
    more=(bool | None, "Whether jobs above the limit are dead, too; null if `job_ids` was given."),
    jobs=(list[RETRIED_ONE] | None, "Results in the order of `job_ids`; null if that was omitted."),
)


class DeadParams(PageQuery):
    """Which dead jobs."""

    lane: Name | None = Field(default=None, description="Only jobs in this lane.")
    type: Name | None = Field(default=None, description="Only jobs of this type.")
    tenant: TenantName | None = Field(default=None, description="Only jobs of this tenant.")


@ROUTES.get("/dead", summary="List dead jobs", response_model=page_model(LaneJob))
async def dead(
    params: Annotated[DeadParams, Query()],
    service: TheService,
    caller: Reader,
) -> Response:
    """List dead jobs with their errors, newest first.

    A page may be short or even empty and still have a cursor, because only a bounded number of jobs
    or bytes is read.
    """
    if params.lane is not None:
        caller.check_lane(params.lane)
    query = JobsQuery(
        lane=params.lane,
        kind=params.type,
        tenant=caller.tenant(params.tenant),
        states=(State.DEAD,),
        newest=True,
        cursor=check_number_cursor(params.cursor),
        limit=params.limit,
    )
    page = await bounded_page(service.store, query)
    rows = [lane_job(job) for job in page.rows if caller.sees(job)]
    return answer({"rows": rows, "cursor": page.cursor})


@ROUTES.post("/retry", summary="Retry dead jobs", response_model=RETRIED)
async def retry(
    body: RetryBody, service: TheService, caller: Operator, repeat_key: RepeatKey = None
) -> Response:
    """Give dead jobs a new life: those listed, or those of a lane or a type, oldest first.

    A single job can get another payload. With the `Idempotency-Key` header, a repeat returns the
    result of the first request.

    Raises:
        InvalidValue: the body does not name the jobs, or names them twice, or has a payload for
        several.
    """
    _check_selection(body)
    edit = Edit()
    if body.payload is not None:
        edit = await edit_of(service, EditBody(args=body.payload))
    move = Move(verb=Verb.RETRY, edit=edit, caller=caller, reason=body.reason)
    move = move.under(repeat_key, body.model_dump())
    if body.job_ids is None:
        which = FilterBody(lane=body.lane, kind=body.type, tenant=body.tenant)
        counts, more = await move_matching(service, move, which, body.limit)
        return answer(_retried_reply(counts, None, more=more))
    ids = [await _find_named(service, caller, one, body.tenant) for one in body.job_ids]
    replies = await move_named(service, move, ids)
    return answer(_retried_reply(Counter(one.answer for one in replies), replies))


async def _find_named(service: Service, caller: Caller, job_id: str, tenant: str | None) -> str:
    """Return the engine's id of a job, or the job_id as it is if the caller sees no such job."""
    try:
        return await find_id(service, caller, job_id, tenant)
    except UnknownJob:
        return job_id


def _check_selection(body: RetryBody) -> None:
    by_filter = body.lane is not None or body.type is not None
    if by_filter == (body.job_ids is not None):
        message = "the body does not say which jobs to retry, or says it twice"
        raise InvalidValue(message, hint="pass `job_ids`, or `lane`, `type` or both")
    if body.payload is not None and len(body.job_ids or ()) != 1:
        message = "a payload requires exactly one job"
        raise InvalidValue(message, hint="pass only that job's id in `job_ids`")


def _retried_reply(
    counts: Counter[Acted], replies: list[ActReply] | None, *, more: bool | None = None
) -> dict[str, object]:
    return {
        **{str(one): counts[one] for one in (Acted.DONE, Acted.REFUSED, Acted.UNKNOWN)},
        "more": more,
        "jobs": None
        if replies is None
        else [{"job_id": one.id, "answer": str(one.answer)} for one in replies],
    }
