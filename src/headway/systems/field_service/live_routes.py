"""GET /field-service/live: where the live page was; it leads to the dashboard's."""

from __future__ import annotations

from fastapi import Response
from fastapi.responses import RedirectResponse

from headway.server.access.policy import Public
from headway.server.routes.router import router

ROUTES = router("system: field_service")


@ROUTES.get(
    "/field-service/live",
    operation_id="field_live",
    summary="The live page",
    status_code=307,
    response_class=RedirectResponse,
)
async def live(_: Public) -> Response:
    """Lead to the requests on the dashboard, that asks for a token where there are tokens."""
    return RedirectResponse("/ui/field-service", 307)
