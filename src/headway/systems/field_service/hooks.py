"""Webhooks of the providers: how a call goes, which key was pressed, what was written."""

from __future__ import annotations

from fastapi import Request, Response

from headway.contract.signals import Decided, Signal, SignalKind
from headway.contract.store import Store
from headway.contract.views import JobQuery
from headway.core.errors import InvalidValue, UnknownRecord
from headway.core.job import derived_id
from headway.runtime.records import encode
from headway.server.access.policy import Public
from headway.server.routes.router import TheService, router
from headway.server.sending import send_jobs
from headway.systems.field_service.answering import Said, reply_to_keys, reply_to_text
from headway.systems.field_service.context import FieldContext, TheContext
from headway.systems.field_service.intake import look_at
from headway.systems.field_service.kinds.alert import CHOOSE
from headway.systems.field_service.kinds.ring import ASK_EACH_S, longest_ms
from headway.systems.field_service.names import ALERT
from headway.systems.field_service.request import run_of
from headway.systems.telephony.exchange import Provider, take
from headway.systems.telephony.voice import CallEvent, CallStatus, Say

AGAIN_MS = 5_000


async def hear_call(store: Store, context: FieldContext, event: CallEvent) -> None:
    """Apply a call's status to its job; at the call's end its line is free.

    Args:
        event: what the provider said, proved.

    Raises:
        StoreError: the store cannot do it now.
    """
    key = event.ref or f"{event.provider}:{event.call_id}"
    # The process that placed it may have died before it recorded it; then it could not be hung up.
    known_as = f"{event.provider}:{event.call_id}"
    body = encode("body", {"status": str(event.status), "call_id": event.call_id})
    if not event.status.ended:
        alert = await _is_alert(store, event.ref)
        # After so long without a webhook of a technician's call, the provider is asked.
        extend_ms = longest_ms(context.settings) if alert else ASK_EACH_S * 1000
        await store.signal(
            Signal(
                key=key,
                event=event.event,
                kind=SignalKind.PROGRESS,
                extend_ms=extend_ms,
                body=body,
                known_as=known_as,
            )
        )
        return
    missed = event.status is not CallStatus.COMPLETED
    if missed and await _is_alert(store, event.ref):
        # The next channel is tried.
        signal = Signal(
            key=key,
            event=event.event,
            decided=Decided.RETRY,
            reason=str(event.status),
            after_ms=AGAIN_MS,
            stage=CHOOSE,
        )
    else:
        signal = Signal(key=key, event=event.event, reason=str(event.status), body=body)
    await store.signal(signal)


async def _is_alert(store: Store, ref: str | None) -> bool:
    job = await store.read(JobQuery(id=run_of(ref)[0])) if ref else None
    return job is not None and job.kind == ALERT


ROUTES = router("system: field_service")
"""There is no token: the provider's own signature proves a webhook."""


@ROUTES.post(
    "/field-service/hooks/{provider}/status",
    operation_id="field_hear_status",
    summary="Receive a call's status",
    status_code=204,
    response_class=Response,
)
async def status(
    request: Request, service: TheService, context: TheContext, _: Public, provider: Provider
) -> Response:
    """Receive a call's status; a repeated webhook has no further effect.

    404: there is no such provider. 401: the signature does not fit. 503: the store is away.
    """
    came = await take(service, context.exchange, provider, request)
    event = context.exchange.voice(provider).read_status(came)
    if event is not None:
        await hear_call(service.store, context, event)
    return Response(status_code=204)


@ROUTES.post(
    "/field-service/hooks/{provider}/answer",
    operation_id="field_hear_answer",
    summary="Receive a pressed key",
    response_class=Response,
)
async def answer(
    request: Request, service: TheService, context: TheContext, _: Public, provider: Provider
) -> Response:
    """Receive a technician's key: 1 accepts, 2 declines.

    The reply is the script for the provider to speak, in its own format; it says who has the job.

    Raises:
        InvalidValue: it is another sort of webhook.
    """
    came = await take(service, context.exchange, provider, request)
    voice = context.exchange.voice(provider)
    pressed = voice.read_pressed(came)
    if pressed is None or pressed.ref is None:
        message = "the webhook does not say which keys were pressed, or about which offer"
        raise InvalidValue(message)
    try:
        said = await reply_to_keys(service.store, context, pressed.ref, pressed, came.url)
    except UnknownRecord:
        said = Said(script=Say(text="This offer is not known."))
    if said.declined is not None:
        look = look_at(context, said.declined, derived_id("keys", pressed.event))
        await send_jobs(service, [look])
    spoken = voice.speak(said.script)
    return Response(spoken.body, media_type=spoken.media_type)


@ROUTES.post(
    "/field-service/hooks/{provider}/texts",
    operation_id="field_hear_text",
    summary="Receive a technician's message",
    response_class=Response,
)
async def texts(
    request: Request, service: TheService, context: TheContext, _: Public, provider: Provider
) -> Response:
    """Receive a message from a technician's phone; the reply says whether they have the job.

    1, yes or accept takes the technician's open offer; 2, no or decline rejects it.
    """
    came = await take(service, context.exchange, provider, request)
    sender = context.exchange.text(provider)
    inbound = sender.read_inbound(came)
    if inbound is None:
        return Response(status_code=204)
    reply = await reply_to_text(service.store, context, inbound)
    if reply.declined is not None:
        look = look_at(context, reply.declined, derived_id("text", inbound.event))
        await send_jobs(service, [look])
    body, media_type = sender.reply_text(reply.text)
    return Response(body, media_type=media_type)
