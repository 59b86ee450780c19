"""POST /v1/leases: a worker says that it lives, and hears what it has lost or must cancel."""

from __future__ import annotations

from typing import Annotated

from fastapi import Response

from headway.contract.claims import BeatRequest
from headway.server.access.caller import Caller
from headway.server.access.permissions import Permission
from headway.server.access.policy import needs
from headway.server.bodies.lease import LeaseBody
from headway.server.pulling.lease import check_lease
from headway.server.pulling.wanted import Wanted, is_pattern
from headway.server.replies.answer import answer
from headway.server.replies.schema import reply
from headway.server.routes.router import TheService, router
from headway.server.service import Service

ROUTES = router("work")

_RUN = reply("Run", "A run of a job.", job=(str, "The job."), run=(int, "Its run."))
_REPLY = reply(
    "Lease",
    "What a worker must know.",
    now=(int, "The store's time."),
    lease_until=(int, "Until when its runs live."),
    lost=(list[_RUN], "Runs that are not live any more: stop them, and write nothing."),
    cancel=(list[_RUN], "Runs that somebody wants cancelled: stop them, and settle."),
)


@ROUTES.post("/v1/leases", operation_id="beat", summary="Keep leases", response_model=_REPLY)
async def beat(
    service: TheService,
    caller: Annotated[Caller, needs(Permission.WORK, apart=True)],
    body: LeaseBody,
) -> Response:
    """Keeps the leases of all that a worker holds; three times in each lease is usual.

    A lease that has ended is not revived: its runs are answered as lost, and their jobs are tried
    again. With `leaving`, what the worker holds and does not list is handed back.
    """
    progress = ((one.job, one.run, one.told_progress()) for one in body.running)
    heard = await service.store.beat(
        BeatRequest(
            worker=caller.worker(body.worker),
            running=tuple((one.job, one.run) for one in body.running),
            request=body.request,
            lease_ms=check_lease(body.lease),
            lanes=await _served(service, caller, body.lanes),
            name=body.name,
            progress=tuple((job, run, data) for job, run, data in progress if data is not None),
            leaving=body.leaving,
        )
    )
    return answer(
        {
            "now": heard.now,
            "lease_until": heard.lease_until,
            "lost": [{"job": job, "run": run} for job, run in heard.lost],
            "cancel": [{"job": job, "run": run} for job, run in heard.cancel],
        }
    )


async def _served(service: Service, caller: Caller, lanes: list[str]) -> tuple[str, ...]:
    """The lanes that a worker serves, by name."""
    if not lanes:
        return ()
    for lane in lanes:
        if not is_pattern(lane):
            caller.check_lane(lane)
    wanted = Wanted(lanes=tuple((lane, 1) for lane in dict.fromkeys(lanes)), reach=caller.lanes)
    return await service.lobby.among(wanted)
