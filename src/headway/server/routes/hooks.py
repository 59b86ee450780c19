"""POST /hooks/{provider}: webhooks, each proved by its provider's own signature."""

from __future__ import annotations

import logging
from typing import Annotated

from fastapi import Path, Request, Response

from headway.server.access.caller import Caller
from headway.server.access.policy import public
from headway.server.hooks.delivery import deliver
from headway.server.routes.router import TheService, router

ROUTES = router("hooks")

_log = logging.getLogger("headway.server")


@ROUTES.post(
    "/hooks/{provider}",
    operation_id="hear_webhook",
    status_code=204,
    response_class=Response,
    summary="Hear a provider's webhook",
    responses={204: {"description": "It was heard; also if it came late, or came before."}},
    openapi_extra={
        "requestBody": {
            "description": "Whatever the provider sends, signed as the provider signs.",
            "content": {"application/json": {}, "application/x-www-form-urlencoded": {}},
        }
    },
)
async def hear(
    request: Request,
    service: TheService,
    _: Annotated[Caller, public()],
    provider: Annotated[str, Path(description="As the settings name it.", examples=["twilio"])],
) -> Response:
    """Hears a webhook and answers at once; a repeated one has no further effect.

    There is no token: the provider's own signature proves it. 404: the provider is not
    configured. 401: the signature is missing or does not fit. 503: the store is away; the
    provider is to send it again.
    """
    came = await service.hooks.take(provider, request)
    replies = await deliver(service.store, service.hooks.signals(provider, came))
    answers = ", ".join(one.answer for one in replies)
    _log.debug("webhook of %s: %s", provider, answers or "nothing for a job")
    return Response(status_code=204)
