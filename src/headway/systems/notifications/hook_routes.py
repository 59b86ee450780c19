"""Webhooks of providers: deliveries, and a recipient's STOP by SMS."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Request, Response

from headway.server.access.caller import Caller
from headway.server.access.policy import public
from headway.server.routes.router import TheService, router
from headway.systems.notifications.delivery import hear, set_sms_opt_out
from headway.systems.notifications.desk import TheDesk
from headway.systems.notifications.senders.hooks import (
    read_mail_delivery,
    read_stop,
    read_text_delivery,
)
from headway.systems.telephony.exchange import take

ROUTES = router("system: notifications", prefix="/notifications/hooks")

Provider = Annotated[str, Path(description="As [telephony] names it.", examples=["twilio"])]
Anybody = Annotated[Caller, public()]


@ROUTES.post(
    "/sendgrid",
    operation_id="notify_hear_mail",
    summary="Apply SendGrid's events of mail",
    status_code=204,
    response_class=Response,
)
async def mail(request: Request, service: TheService, desk: TheDesk, _: Anybody) -> Response:
    """Applies what SendGrid says of mail; a repeated event has no further effect.

    There is no token: SendGrid's signature is verified with the keys of [hooks.sendgrid]. 503: the
    store is away; SendGrid is to send it again.
    """
    came = await service.hooks.take("sendgrid", request)
    for event in read_mail_delivery(came):
        await hear(desk, event)
    return Response(status_code=204)


@ROUTES.post(
    "/{provider}/status",
    operation_id="notify_hear_text",
    summary="Apply what became of a text message",
    status_code=204,
    response_class=Response,
)
async def status(
    provider: Provider, request: Request, service: TheService, desk: TheDesk, _: Anybody
) -> Response:
    """Applies a status webhook; a repeated one has no further effect.

    There is no token: the provider's signature is verified. 503: the store is away; the provider
    is to send it again.
    """
    exchange = desk.parts.exchange
    came = await take(service, exchange, provider, request)
    for event in read_text_delivery(exchange.text(provider), came):
        await hear(desk, event)
    return Response(status_code=204)


@ROUTES.post(
    "/{provider}/texts",
    operation_id="notify_hear_stop",
    summary="Apply a STOP that somebody wrote",
    response_class=Response,
)
async def texts(
    provider: Provider, request: Request, service: TheService, desk: TheDesk, _: Anybody
) -> Response:
    """Opts a telephone number out of SMS that has written STOP; anything else changes nothing.

    There is no token: the provider's signature is verified.
    """
    exchange = desk.parts.exchange
    came = await take(service, exchange, provider, request)
    phone = read_stop(exchange.text(provider), came)
    if phone is not None:
        await set_sms_opt_out(desk, phone)
    body, media = exchange.text(provider).reply_text(None)
    return Response(body, media_type=media)
