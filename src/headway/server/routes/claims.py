"""POST /v1/claims: work for whoever asks, at once or as soon as there is some."""

from __future__ import annotations

from typing import Annotated

from fastapi import Request, Response

from headway.server.access.caller import Caller
from headway.server.access.permissions import Permission
from headway.server.access.policy import needs
from headway.server.bodies.claim import ClaimBody
from headway.server.for_callers.pulls import answer_pull
from headway.server.pulling.pull import Pulled
from headway.server.replies.claimed import ClaimedModel, claimed_record
from headway.server.replies.schema import reply
from headway.server.routes.router import TheService, router
from headway.server.service import Service
from headway.server.signal_urls import signal_urls

ROUTES = router("work")

_REPLY = reply(
    "Claim",
    "What a claim hands out.",
    request=(int, "The number of the claim; 0 if none was made in your name."),
    jobs=(list[ClaimedModel], "In the order to be started."),
    now=(int, "The store's time."),
    lease_until=(
        int | None,
        "When your worker's runs lapse without a beat, by the store's time; null if that was not "
        "asked.",
    ),
    next_at=(int | None, "When it is worth asking again; null for not before something happens."),
    again=(bool, "Ask again at once."),
    after=(dict[str, int], "To be given to your worker's next claim, if you keep it."),
)


@ROUTES.post(
    "/v1/claims",
    operation_id="claim",
    summary="Claim jobs",
    response_model=_REPLY,
    openapi_extra={
        "requestBody": {
            "content": {
                "application/json": {
                    "example": {"worker": "worker-1", "lanes": "calls,mail:2", "wait": "25s"}
                }
            }
        }
    },
)
async def claim(
    request: Request,
    service: TheService,
    caller: Annotated[Caller, needs(Permission.WORK)],
    body: ClaimBody,
) -> Response:
    """Starts up to `max` jobs, each with all its permits; with `wait`, a long poll.

    The jobs are yours until `lease_until`: keep the lease with POST /v1/leases, and say how they
    ended with POST /v1/settlements. Whoever has waited longest for the same lanes is served first.
    A repeat of a `request` number answers the jobs of the first that the worker still holds. If
    the client goes away before the reply is written, its jobs are handed back at once.
    """
    base = str(request.base_url)
    return await answer_pull(
        service, caller, body, request, lambda pulled: _told(service, pulled, base)
    )


def _told(service: Service, pulled: Pulled, base: str) -> dict[str, object]:
    urls, now = signal_urls(service, base), service.timing.wall_at()
    jobs: list[object] = []
    for one in pulled.jobs:
        ref = f"{one.id}:{one.run}"
        jobs.append(claimed_record(one, ref, urls.url(ref, now)))
    return {
        "request": pulled.request,
        "jobs": jobs,
        "now": pulled.now,
        "lease_until": pulled.lease_until,
        "next_at": pulled.next_at,
        "again": pulled.again,
        "after": dict(pulled.after),
    }
