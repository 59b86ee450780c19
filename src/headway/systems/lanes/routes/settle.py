"""POST /ack, /fail, /extend."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Response

from headway.contract.claims import BeatRequest
from headway.contract.outcomes import Verdict
from headway.contract.views import JobQuery, JobView
from headway.core.errors import InvalidValue, LeaseLost
from headway.core.state import State
from headway.server.access.caller import Caller, Permission
from headway.server.access.policy import needs
from headway.server.bodies.work import AnyOutcome, DeadBody, FailedBody, RunningBody, SucceededBody
from headway.server.long_polling.lanes import check_lease
from headway.server.replies.reply import answer, reply
from headway.server.routes.router import TheService, router
from headway.server.routes.settlements import settle_runs
from headway.server.service import Service
from headway.systems.lanes.bodies import AckBody, ExtendBody, FailBody, PulledBody
from headway.systems.lanes.job_ids import find_id
from headway.systems.lanes.status import Status, status_of

ROUTES = router("system: lanes", any_type=True)
Puller = Annotated[Caller, needs(Permission.WORK)]

SETTLED = reply(
    "LanesSettled",
    "The result of an acknowledgement.",
    job_id=(str, "The engine's id."),
    answer=(
        Literal["done", "already", "cancelled"],
        '"already": this run was settled before, or the job is done, and nothing was written; '
        '"cancelled": it was cancelled meanwhile, and ends so.',
    ),
    status=(Status | None, "Its status now; null if it is kept no longer."),
    due_at=(int | None, "When it is due again, if it is."),
)
EXTENDED = reply(
    "LanesExtended",
    "The job is still yours.",
    job_id=(str, "The engine's id."),
    lease_until=(int, "Until when, without another beat."),
    now=(int, "The store's time."),
    cancel=(bool, "Its cancellation was requested: stop, and say fail."),
)

_STOP = "its lease has ended, or it was never pulled so; stop"


@ROUTES.post("/ack", operation_id="lanes_ack", summary="A job is done", response_model=SETTLED)
async def ack(body: AckBody, service: TheService, caller: Puller) -> Response:
    """Acknowledge a job. If it is done already, also by another worker, this is a no-op.

    Raises:
        LeaseLost: the job is not done, and not this worker's any more; nothing was written.
    """
    job = await find_id(service, caller, body.job_id, body.tenant)
    said = SucceededBody(outcome="succeeded", job=job, run=body.run, result=body.result)
    return await _settle(service, caller, body, said)


@ROUTES.post(
    "/fail", operation_id="lanes_fail", summary="An attempt failed", response_model=SETTLED
)
async def fail(body: FailBody, service: TheService, caller: Puller) -> Response:
    """Says that an attempt failed: tried again later, or dead after the last attempt.

    Raises:
        InvalidValue: the job is to be tried again later, and is to be dead.
        LeaseLost: the job is not this worker's any more; nothing was written.
    """
    if body.dead and body.after is not None:
        message = "the job is to be dead, and to be tried again"
        raise InvalidValue(message, hint="give `dead` or `after`")
    job = await find_id(service, caller, body.job_id, body.tenant)
    said: AnyOutcome
    if body.dead:
        reason = next(iter(body.error.splitlines()), "")[:200] or "failed"
        said = DeadBody(outcome="dead", job=job, run=body.run, reason=reason, error=body.error)
    else:
        said = FailedBody(
            outcome="failed", job=job, run=body.run, error=body.error, after=body.after
        )
    return await _settle(service, caller, body, said)


@ROUTES.post(
    "/extend", operation_id="lanes_extend", summary="A job takes longer", response_model=EXTENDED
)
async def extend(body: ExtendBody, service: TheService, caller: Puller) -> Response:
    """Keep a job, and all others that the worker has pulled, for another lease from now.

    Raises:
        LeaseLost: the job is not this worker's any more; stop, another may have it.
    """
    job = await find_id(service, caller, body.job_id, body.tenant)
    run = (job, body.run)
    progress = RunningBody(job=job, run=body.run, progress=body.progress).told_progress()
    heard = await service.store.beat(
        BeatRequest(
            worker=caller.worker(body.worker),
            running=(run,),
            lease_ms=check_lease(body.lease),
            name=body.worker,
            progress=() if progress is None else ((*run, progress),),
        )
    )
    if run in heard.lost:
        raise LeaseLost(_not_yours(body), hint=_STOP)
    return answer(
        {
            "job_id": job,
            "lease_until": heard.lease_until,
            "now": heard.now,
            "cancel": run in heard.cancel,
        }
    )


async def _settle(service: Service, caller: Caller, body: PulledBody, said: AnyOutcome) -> Response:
    """Write what a run says.

    Raises:
        LeaseLost: it is not live any more, and says not only what is so anyway.
    """
    (verdict,) = await settle_runs(service, caller, body.worker, [said])
    found = await service.store.read(JobQuery(id=said.job))
    if verdict is Verdict.LOST:
        if not (isinstance(said, SucceededBody) and _is_done(caller, found)):
            raise LeaseLost(_not_yours(body), hint=_STOP)
        verdict = Verdict.ALREADY
    status = None if found is None else status_of(found)
    due_at = found.due_at if found is not None and status is Status.FAILED else None
    return answer({"job_id": said.job, "answer": str(verdict), "status": status, "due_at": due_at})


def _is_done(caller: Caller, job: JobView | None) -> bool:
    return job is not None and caller.sees(job) and job.state is State.SUCCEEDED


def _not_yours(body: PulledBody) -> str:
    return f"run {body.run} of the job {body.job_id[:64]!r} is not {body.worker[:64]!r}'s"
