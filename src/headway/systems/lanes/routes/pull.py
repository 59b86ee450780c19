"""POST /pull."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import Request, Response

from headway.contract.claims import Claimed
from headway.server.access.caller import Caller, Permission
from headway.server.access.policy import needs
from headway.server.long_polling.claiming import PollReply
from headway.server.replies.reply import reply
from headway.server.routes.claims import answer_pull
from headway.server.routes.router import TheService, router
from headway.systems.lanes.bodies import PullBody

ROUTES = router("system: lanes", any_type=True)

PULLED_JOB = reply(
    "PulledJob",
    "A job that is yours until the lease ends.",
    job_id=(str, "The engine's id."),
    run=(int, "To be shown with the acknowledgement."),
    lane=(str, "Where it waited."),
    type=(str, "Names the handler."),
    payload=(dict[str, Any], "For the handler."),
    attempt=(int, "1 for the first."),
    tenant=(str, "The customer it runs for; may be empty."),
    due_at=(int, "When it was due."),
)
PULLED = reply(
    "LanesPulled",
    "What a pull brought.",
    jobs=(list[PULLED_JOB], "In the order to be done; empty if the wait was over before one came."),
    now=(int, "The store's time."),
    lease_until=(int | None, "Until when they are yours without a beat; null without any."),
)


@ROUTES.post("/pull", operation_id="lanes_pull", summary="Take jobs", response_model=PULLED)
async def pull_jobs(
    body: PullBody,
    request: Request,
    service: TheService,
    caller: Annotated[Caller, needs(Permission.WORK)],
) -> Response:
    """Take up to `max` jobs; while there is none, waits up to `wait`.

    A job is yours until `lease_until`; `/extend` moves that on. What is not acknowledged by then
    comes back and is given to another. If you go away while you wait, nothing is taken.
    """
    return await answer_pull(service, caller, body, request, _view)


def _view(pulled: PollReply) -> dict[str, object]:
    return {
        "jobs": [_job(one) for one in pulled.jobs],
        "now": pulled.now,
        "lease_until": pulled.lease_until if pulled.jobs else None,
    }


def _job(one: Claimed) -> dict[str, object]:
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
