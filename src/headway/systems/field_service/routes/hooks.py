"""Webhooks of the providers: how a call goes, which key was pressed, what was written."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Request, Response

from headway.core.errors import InvalidValue, UnknownRecord
from headway.core.job import derived_id
from headway.server.access.caller import Caller
from headway.server.access.policy import public
from headway.server.for_callers.sending import send_jobs
from headway.server.routes.router import TheService, router
from headway.systems.field_service.desk import TheDesk
from headway.systems.field_service.hearing_calls import hear_call
from headway.systems.field_service.intake import look_at
from headway.systems.field_service.replying import Said, reply_to_keys, reply_to_text
from headway.systems.telephony.hearing import take
from headway.systems.telephony.voice import Say

ROUTES = router("system: field_service")
Anybody = Annotated[Caller, public()]
Provider = Annotated[str, Path(description="As [telephony] names it.", examples=["twilio"])]
"""There is no token: the provider's own signature proves a webhook."""


@ROUTES.post(
    "/field-service/hooks/{provider}/status",
    operation_id="field_hear_status",
    summary="Hear how a call goes",
    status_code=204,
    response_class=Response,
)
async def status(
    request: Request, service: TheService, desk: TheDesk, _: Anybody, provider: Provider
) -> Response:
    """Hears how a call goes; a repeated webhook has no further effect.

    404: there is no such provider. 401: the signature does not fit. 503: the store is away.
    """
    came = await take(service, desk.exchange, provider, request)
    event = desk.exchange.voice(provider).read_status(came)
    if event is not None:
        await hear_call(service.store, desk, event)
    return Response(status_code=204)


@ROUTES.post(
    "/field-service/hooks/{provider}/answer",
    operation_id="field_hear_answer",
    summary="Hear which key was pressed",
    response_class=Response,
)
async def answer(
    request: Request, service: TheService, desk: TheDesk, _: Anybody, provider: Provider
) -> Response:
    """Hears a technician's key, and says whether he has the job: 1 accepts, 2 declines.

    The reply is what the provider is to say, in its own language.

    Raises:
        InvalidValue: it is another sort of webhook.
    """
    came = await take(service, desk.exchange, provider, request)
    voice = desk.exchange.voice(provider)
    pressed = voice.read_pressed(came)
    if pressed is None or pressed.ref is None:
        message = "the webhook does not say which keys were pressed, or about which offer"
        raise InvalidValue(message)
    try:
        said = await reply_to_keys(service.store, desk, pressed.ref, pressed, came.url)
    except UnknownRecord:
        said = Said(script=Say(text="This offer is not known."))
    if said.declined is not None:
        look = look_at(desk, said.declined, derived_id("keys", pressed.event))
        await send_jobs(service, [look])
    spoken = voice.speak(said.script)
    return Response(spoken.body, media_type=spoken.media_type)


@ROUTES.post(
    "/field-service/hooks/{provider}/texts",
    operation_id="field_hear_text",
    summary="Hear what a technician wrote",
    response_class=Response,
)
async def texts(
    request: Request, service: TheService, desk: TheDesk, _: Anybody, provider: Provider
) -> Response:
    """Hears a message from a technician's phone, and replies whether he has the job.

    1, yes or accept takes the offer that is open to him; 2, no or decline does not.
    """
    came = await take(service, desk.exchange, provider, request)
    sender = desk.exchange.text(provider)
    inbound = sender.read_inbound(came)
    if inbound is None:
        return Response(status_code=204)
    reply = await reply_to_text(service.store, desk, inbound)
    if reply.declined is not None:
        look = look_at(desk, reply.declined, derived_id("text", inbound.event))
        await send_jobs(service, [look])
    body, media_type = sender.reply_text(reply.text)
    return Response(body, media_type=media_type)
