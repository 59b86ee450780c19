"""POST /leads/{id}/dispatch-now."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import uuid4

from fastapi import Response

from headway.contract.operate import Acted, ActRequest, Verb
from headway.contract.views import WhyQuery
from headway.core.errors import InvalidState
from headway.core.state import State
from headway.server.access.caller import Caller
from headway.server.access.permissions import Permission
from headway.server.access.policy import needs
from headway.server.replies.answer import answer
from headway.server.replies.error_members import add_members
from headway.server.replies.schema import reply
from headway.server.routes.router import TheService, router
from headway.server.service import Service
from headway.systems.calls.lead import LeadStatus, status_of
from headway.systems.calls.routes.leads import lead_seen

ROUTES = router("system: calls")
SOON_MS = 1_000
"""Within which a lead is dispatched whose gates are open."""

QUEUED = reply(
    "LeadQueued",
    "The lead is due now.",
    status=(Literal["queued"], "Always."),
    expected_dispatch_within_ms=(
        int | None,
        "If its gates open as is known now; null if nobody knows when they do.",
    ),
)


@ROUTES.post(
    "/leads/{id}/dispatch-now",
    operation_id="calls_dispatch_now",
    summary="Call a lead as soon as it may be called",
    response_model=QUEUED,
)
async def dispatch_now(
    id: str,  # noqa: A002  (the path's word)
    service: TheService,
    caller: Annotated[Caller, needs(Permission.SEND)],
) -> Response:
    """Makes a lead due now; calling hours, rates and lines still hold.

    409: it is being called. 400: it is finished.

    Raises:
        InvalidState: it is being called, or is finished.
    """
    job = await lead_seen(service, caller, id)
    if job.state is not State.RUNNING or status_of(job) is not LeadStatus.BACKLOG:
        request = ActRequest(
            request=str(uuid4()), ids=(job.id,), verb=Verb.RUN_NOW, author=caller.name
        )
        (acted,) = await service.store.act(request)
        if acted.answer is not Acted.DONE:
            status = status_of(await lead_seen(service, caller, id))
            error = InvalidState(f"the lead is {status}", hint="GET /leads/{id} tells its attempts")
            if status is LeadStatus.FINISHED:
                add_members(error, status=400)
            raise error
    within = await _expected(service, job.id)
    return answer({"status": "queued", "expected_dispatch_within_ms": within})


async def _expected(service: Service, id: str) -> int | None:  # noqa: A002  (the field's name)
    why = await service.store.read(WhyQuery(id=id))
    if why is None or not (why.closed or why.never_fits):
        return SOON_MS
    if why.never_fits or why.next_at is None:
        return None
    return max(0, why.next_at - why.now) + SOON_MS
