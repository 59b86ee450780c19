"""POST /enqueue."""

from __future__ import annotations

from dataclasses import replace

from fastapi import Response

from headway.core.job import DEFAULT_POLICY
from headway.core.retry import Backoff
from headway.server.access.policy import Sender
from headway.server.bodies.jobs import JobBody
from headway.server.replies.reply import answer, reply
from headway.server.routes.router import TheService, router
from headway.server.sending import make_job, send_jobs
from headway.systems.lanes.bodies import EnqueueBody
from headway.systems.lanes.job_ids import as_uuid

ROUTES = router("system: lanes", any_type=True)

POLICY = replace(DEFAULT_POLICY, retry=Backoff(attempts=5, base="10s", factor=8, cap="1h"))
"""Of jobs whose type says nothing else: their five attempts outlive an outage of half an hour."""

ENQUEUED = reply(
    "Enqueued",
    "Which job exists now.",
    job_id=(str, "The engine's id."),
    created=(bool, "Whether this call made it."),
)


@ROUTES.post(
    "/enqueue",
    operation_id="lanes_enqueue",
    summary="Make a job",
    status_code=201,
    response_model=ENQUEUED,
    response_description="The job was made.",
    responses={200: {"model": ENQUEUED, "description": "It was there."}},
)
async def enqueue(
    body: EnqueueBody,
    service: TheService,
    caller: Sender,
) -> Response:
    """Make a job; when this returns, it is stored.

    Sent again with the same `job_id` it is still one job, until seven days after its end; with
    another lane, type or payload that is a conflict (409).
    """
    id_of_engine = None if body.job_id is None else as_uuid(body.job_id)
    # Each value has passed the very type of its field.
    made = JobBody.model_construct(
        kind=body.type,
        args=body.payload,
        lane=body.lane,
        due=body.due,
        tenant=body.tenant,
        id=id_of_engine,
        key=body.job_id if id_of_engine is None else None,
    )
    job = await make_job(service, caller, made)
    if job.policy == DEFAULT_POLICY:
        job = replace(job, policy=POLICY)
    (sent,) = await send_jobs(service, [job], caller=caller)
    said = {"job_id": sent.id, "created": sent.created}
    return answer(said, 201 if sent.created else 200)
