"""/v1/me: whom the server takes the caller for."""

from __future__ import annotations

from typing import Annotated

from fastapi import Response

from headway.server.access.caller import ANYBODY, Caller
from headway.server.access.permissions import Permission
from headway.server.access.policy import needs
from headway.server.replies.answer import answer
from headway.server.replies.schema import reply
from headway.server.routes.router import router

ROUTES = router("tokens", prefix="/v1/me")

_ME = reply(
    "Me",
    "Whom the server takes the caller for.",
    id=(str, "The token's."),
    name=(str, "Stands on the trail as the author."),
    may=(list[Permission], "What the token may do."),
    tenants=(list[str] | None, "Only these; null for any."),
    lanes=(list[str] | None, "Only these, or those that fit a pattern; null for any."),
    closes=(list[str], "Gates that its runs may close, or patterns of these."),
    open=(bool, "Anybody may call this server."),
)


@ROUTES.get("", operation_id="me", summary="Who am I", response_model=_ME)
async def me(caller: Annotated[Caller, needs(Permission.READ)]) -> Response:
    """Tells what the token that was sent may do, and for which tenants and lanes."""
    return answer(
        {
            "id": caller.id,
            "name": caller.name,
            "may": sorted(caller.may),
            "tenants": caller.tenants,
            "lanes": caller.lanes,
            "closes": caller.closes,
            "open": caller is ANYBODY,
        }
    )
