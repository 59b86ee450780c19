"""/metrics: what Prometheus reads."""

from __future__ import annotations

from typing import Annotated

from fastapi import Request, Response

from headway.server.access.caller import Caller
from headway.server.access.permissions import Permission
from headway.server.access.policy import needs
from headway.server.routes.router import TheService, router

ROUTES = router("observe")


@ROUTES.get(
    "/metrics",
    operation_id="metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={
        200: {
            "description": "The metrics; in OpenMetrics if the caller accepts it.",
            "content": {
                "text/plain": {"schema": {"type": "string"}},
                "application/openmetrics-text": {"schema": {"type": "string"}},
            },
        }
    },
)
async def metrics(
    request: Request,
    service: TheService,
    caller: Annotated[Caller, needs(Permission.OBSERVE)],
) -> Response:
    """Jobs by lane and state, gates, workers, and this server's own requests.

    No label names a tenant or what stands in a job. Answers also when the store does not:
    `headway_store_up` is 0 then.
    """
    caller.whole()
    text, media_type = await service.scrapes.scrape(
        request.headers.get("accept", ""),
        long_polls=len(service.lobby),
        event_streams=len(service.feed),
        leads=service.alerts.leads,
    )
    return Response(text, headers={"Content-Type": media_type})
