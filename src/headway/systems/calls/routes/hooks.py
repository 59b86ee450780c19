"""POST /calls/hooks/{provider}: what providers say of calls."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Request, Response

from headway.server.access.caller import Caller
from headway.server.access.policy import public
from headway.server.routes.router import TheService, router
from headway.systems.calls.desk import TheDesk
from headway.systems.calls.hearing import hear
from headway.systems.telephony.hearing import take

ROUTES = router("system: calls")


@ROUTES.post(
    "/calls/hooks/{provider}",
    operation_id="calls_hear",
    summary="Hear how a call goes on",
    status_code=204,
    response_class=Response,
    responses={204: {"description": "It was heard; also if it came twice, late, or of no call."}},
    openapi_extra={
        "requestBody": {
            "description": "Whatever the provider sends, signed as the provider signs.",
            "content": {"application/json": {}, "application/x-www-form-urlencoded": {}},
        }
    },
)
async def hook(
    request: Request,
    service: TheService,
    desk: TheDesk,
    _: Annotated[Caller, public()],
    provider: Annotated[str, Path(description="As [telephony] names it.", examples=["twilio"])],
) -> Response:
    """Hears a status webhook; a repeated one has no further effect.

    There is no token: the provider's own signature proves it. 404: the provider is not
    configured. 401: the signature is missing or does not fit. 503: the store is away; the
    provider is to send it again.
    """
    exchange = desk.parts.exchange
    came = await take(service, exchange, provider, request)
    voice = exchange.voices.get(provider)
    event = None if voice is None else voice.read_status(came)
    if event is not None:
        await hear(desk, event)
    return Response(status_code=204)
