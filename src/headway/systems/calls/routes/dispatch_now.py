"""POST /leads/{id}/dispatch-now."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal
from uuid import uuid4

from fastapi import Response

from headway.contract.operate import Acted, ActRequest, Verb
from headway.contract.views import GatesQuery, GateState, JobQuery, JobView, WhyQuery
from headway.core.errors import InvalidState, StoreUnavailable, UnknownRecord
from headway.core.gates.hours import intervals, next_opening
from headway.core.gates.spec import GateSpec
from headway.core.state import State
from headway.server.access.caller import Caller
from headway.server.access.permissions import Permission
from headway.server.access.policy import needs
from headway.server.replies.answer import answer
from headway.server.replies.error_members import add_members
from headway.server.replies.schema import reply
from headway.server.routes.router import TheService, router
from headway.server.service import Service
from headway.systems.calls.desk import CHECK, DIAL, Desk, TheDesk
from headway.systems.calls.lead import LeadStatus, status_of
from headway.systems.calls.lead_args import read_args
from headway.systems.calls.routes.leads import lead_seen

ROUTES = router("system: calls")
SOON_MS = 1_000
"""Within which a lead is dispatched whose gates are open."""
AHEAD_MS = 14 * 86_400_000
"""How far ahead the next opening of calling hours is looked for."""

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
    desk: TheDesk,
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
    within = await _expected(service, desk, job.id)
    return answer({"status": "queued", "expected_dispatch_within_ms": within})


async def _expected(service: Service, desk: Desk, id: str) -> int | None:  # noqa: A002  (the field's name)
    """In how many ms the lead is called at the earliest; None if that is not known."""
    job = await service.store.read(JobQuery(id=id))
    why = await service.store.read(WhyQuery(id=id))
    if job is None or why is None:
        return SOON_MS
    if why.never_fits:
        return None
    opens = [one.opens_at for one in why.closed]
    if job.stage == CHECK:
        # Its checks come first, but it is called only when the gates of its dial open as well.
        try:
            opens += await _dial_opens(service, desk, job, why.now)
        except UnknownRecord:
            # Its template is gone: it ends with its checks.
            return SOON_MS
        except StoreUnavailable:
            return None
    known = [at for at in opens if at is not None]
    if len(known) < len(opens):
        return None
    return max([0, *(at - why.now for at in known)]) + SOON_MS


async def _dial_opens(service: Service, desk: Desk, job: JobView, now: int) -> Iterable[int | None]:
    """When each closed gate of a lead's dial opens; None for one of which that is not known.

    Raises:
        UnknownRecord: its template is gone.
        StoreUnavailable: the directory cannot be reached.
    """
    page = await desk.book.read()
    args = read_args(job.args)
    gates = desk.dial_gates(page, page.template(args.template), job.tenant)
    specs = {one.name: one for one in gates}
    uses = desk.kind.uses(DIAL, job.lane, job.tenant, job.args, gates)
    names = tuple(one.name for one in uses)
    states = {one.name: one for one in (await service.store.read(GatesQuery(names=names))).rows}
    opens = [
        _opens_at(states[one.name], specs[one.template], args.tz, now)
        for one in uses
        if one.name in states
    ]
    return [at for at in opens if at != now]


def _opens_at(state: GateState, spec: GateSpec, tz: str, now: int) -> int | None:
    """When a gate opens; now if it is open."""
    if state.closed_until is None and spec.hours is not None:
        # The store knows the hours of a zone only once a lead has waited there.
        return next_opening(intervals(spec.hours, tz, now, now + AHEAD_MS), now)
    return now if state.open else state.opens_at
