"""Technicians' answers to offers, by key press, text message or API; the providers' webhooks."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import StrEnum

from fastapi import Request, Response

from headway.contract.signals import Decided, Signal, SignalKind, SignalResult
from headway.contract.store import Store
from headway.contract.views import JobQuery, JobView
from headway.core.check import read_reference
from headway.core.errors import InvalidValue, UnknownRecord
from headway.core.job import derived_id
from headway.core.state import State
from headway.runtime.records import encode
from headway.server.access import Public
from headway.server.routing import TheService, router
from headway.server.sending import send_jobs
from headway.server.service import Service
from headway.systems.directory.tally import Tally
from headway.systems.field_service.context import FieldContext, TheContext
from headway.systems.field_service.follow_ups import BY_CALL
from headway.systems.field_service.intake import review_now
from headway.systems.field_service.messages import (
    ASK_AGAIN,
    BYE,
    DECLINED,
    KEYS,
    KEYS_WRITTEN,
    NO_OFFER,
    OVER,
    TAKEN,
    WITHDRAWN,
    accepted_text,
)
from headway.systems.field_service.metrics import OFFER_ENDED, OfferEnd
from headway.systems.field_service.offer_calls import (
    ASK_EACH_S,
    CHOOSE,
    delay_after_missed,
    longest_ms,
)
from headway.systems.field_service.passing_over import request_held_by
from headway.systems.field_service.records import record_answered_offer
from headway.systems.field_service.request import (
    ALERT,
    RING,
    acceptor,
    asked_now,
    read_request,
    run_of,
)
from headway.systems.field_service.technicians import technician_of_phone
from headway.systems.jobs import find_run, ref_of
from headway.systems.telephony.providers import Provider, read_webhook
from headway.systems.telephony.texts import Inbound
from headway.systems.telephony.voice import (
    Ask,
    CallEvent,
    CallStatus,
    Pressed,
    Say,
    call_of,
    is_of_another_call,
)

_log = logging.getLogger("headway.field_service")


class AnswerEffect(StrEnum):
    """The effect of an answer."""

    ACCEPTED = "accepted"
    """The technician has the request."""
    DECLINED = "declined"
    """The next technician is asked."""
    TAKEN = "taken"
    """Too late: another technician has the request."""
    OVER = "over"
    """Too late: the offer has ended; the request may still be open."""
    WITHDRAWN = "withdrawn"
    """Too late: the request was withdrawn."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """The verdict on an answer.

    Attributes:
        request: the request's job, read after the answer was applied.
    """

    verdict: AnswerEffect
    request: JobView


async def answer(  # noqa: PLR0913  (the parts of an answer)
    store: Store, tally: Tally, *, ref: str, technician: str, accepts: bool, event: str, by: str
) -> Answered:
    """Signal a technician's answer to the store, and return the verdict.

    Args:
        event: id of the answer, the same for each repeat.
        by: "by call", "by text" or "by API"; recorded as the reason.

    Raises:
        UnknownRecord: there is no such request.
        StoreError: the store failed; the answer must be sent again.
    """
    reply = await store.signal(
        Signal(
            key=ref,
            event=event,
            decided=Decided.ACCEPTED if accepts else Decided.DECLINED,
            candidate=technician,
            reason=by,
            body=encode("body", {"by": by}) if accepts else None,
        )
    )
    if reply.answer is SignalResult.APPLIED:
        tally.happened(OFFER_ENDED, OfferEnd.ACCEPTED if accepts else OfferEnd.DECLINED)
    id_, run = run_of(ref)
    request = await store.read(JobQuery(id=id_))
    if request is None:
        message = f"there is no request {id_[:64]!r}"
        raise UnknownRecord(message)
    verdict = _verdict(request, run, technician, accepts=accepts)
    if reply.answer is SignalResult.LATE:
        await _note_late(store, ref, event, technician, accepts=accepts)
    return Answered(verdict=verdict, request=request)


def _verdict(request: JobView, run: int, technician: str, *, accepts: bool) -> AnswerEffect:
    """Derive the verdict from the request's current state, so that it also holds for a repeat."""
    winner = acceptor(request)
    answered = find_run(request, run)
    if request.state is State.CANCELLED:
        return AnswerEffect.WITHDRAWN
    if winner == technician and request.run == run:
        return AnswerEffect.ACCEPTED
    if answered is not None and answered.outcome == Decided.DECLINED and not accepts:
        return AnswerEffect.DECLINED
    return AnswerEffect.TAKEN if winner else AnswerEffect.OVER


async def _note_late(store: Store, ref: str, event: str, technician: str, *, accepts: bool) -> None:
    """Record a late answer as a note."""
    word = "accepts" if accepts else "declines"
    await store.signal(
        Signal(
            key=ref,
            event=f"late:{event}"[:512],
            kind=SignalKind.NOTE,
            label=f"late: {technician} {word}"[:512],
        )
    )


ACCEPT = frozenset({"1", "yes", "y", "accept", "ok"})
DECLINE = frozenset({"2", "no", "n", "decline"})
BY_TEXT = "by text"


async def reply_to_keys(
    store: Store, context: FieldContext, ref: str, pressed: Pressed, again_url: str
) -> tuple[Say | Ask, Answered | None]:
    """Return the reply to a pressed key, and the verdict if the key was an answer.

    Args:
        again_url: URL that receives the next key.

    Raises:
        UnknownRecord: there is no such offer, or its call is another one.
    """
    request, run = read_reference(ref) or ("", 0)
    job = await store.read(JobQuery(id=request)) if request else None
    offered = find_run(job, run) if job is not None else None
    if job is None or offered is None or not offered.candidate:
        message = "there is no such offer"
        raise UnknownRecord(message)
    ring = await store.read(JobQuery(id=derived_id(RING, ref)))
    known = call_of(ring.runs[-1]) if ring is not None and ring.runs else None
    if known is not None and known[1] != pressed.call_id:
        # Not every signature covers the URL, which names the offer.
        message = "the key was pressed in a call about another offer"
        raise UnknownRecord(message)
    if not pressed.digits:
        return Say(text=BYE), None
    if pressed.digits not in ACCEPT | DECLINE:
        return Ask(text=f"{ASK_AGAIN} {KEYS}", answer_url=again_url), None
    answered = await answer(
        store,
        context.tally,
        ref=ref,
        technician=offered.candidate,
        accepts=pressed.digits in ACCEPT,
        event=pressed.event,
        by=BY_CALL,
    )
    return Say(text=_words(answered)), answered


async def reply_to_text(
    store: Store, context: FieldContext, inbound: Inbound
) -> tuple[str, Answered | None]:
    """Return the reply to a text message, and the verdict if the message was an answer."""
    async with context.directory.read() as session:
        technician = await technician_of_phone(session, inbound.from_)
    if technician is None:
        return "This phone number is not known.", None
    word = inbound.text.strip().strip(".!").casefold()
    if word not in ACCEPT | DECLINE:
        return KEYS_WRITTEN, None
    offer, now = await _offer_to(store, technician.id), context.timing.wall_at()
    # A message names no offer, so a repeat must not answer the technician's next offer.
    async with context.directory.change() as session:
        ref = await record_answered_offer(session, inbound.event, offer, now)
    if not ref:
        return NO_OFFER, None
    try:
        answered = await answer(
            store,
            context.tally,
            ref=ref,
            technician=technician.id,
            accepts=word in ACCEPT,
            event=f"text:{inbound.event}",
            by=BY_TEXT,
        )
    except UnknownRecord:
        # A repeat, after its request was deleted.
        return NO_OFFER, None
    return _words(answered), answered


async def _offer_to(store: Store, technician: str) -> str:
    """Return the reference of the technician's open or accepted offer, or an empty string."""
    job = await request_held_by(store, technician)
    if job is None or technician not in {asked_now(job), acceptor(job)}:
        return ""
    return ref_of(job)


def _words(answered: Answered) -> str:
    match answered.verdict:
        case AnswerEffect.ACCEPTED:
            return accepted_text(read_request(answered.request.args))
        case AnswerEffect.DECLINED:
            return DECLINED
        case AnswerEffect.TAKEN:
            return TAKEN
        case AnswerEffect.OVER:
            return OVER
        case AnswerEffect.WITHDRAWN:
            return WITHDRAWN


async def apply_call_event(store: Store, context: FieldContext, event: CallEvent) -> None:
    """Apply a call's status to its job; the end of the call frees its line."""
    # Hanging up needs the call's id, and the process that placed it may have died before recording
    # it.
    known_as = f"{event.provider}:{event.call_id}"
    named = read_reference(event.ref) if event.ref else None
    ref = event.ref if named else None
    job = await store.read(JobQuery(id=named[0])) if named else None
    if named and job and _is_foreign(event, job, named[1]):
        _log.warning("webhook ignored: its run has another call call=%s ref=%s", known_as, ref)
        return
    alert = job is not None and job.kind == ALERT
    key = ref or known_as
    body = encode("body", {"status": str(event.status), "call_id": event.call_id})
    if not event.status.ended:
        # After this time without a webhook, the provider is asked about a technician's call, and
        # an alert is retried.
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
    if missed and job is not None and job.kind == ALERT:
        # Try the next channel.
        signal = Signal(
            key=key,
            event=event.event,
            decided=Decided.RETRY,
            reason=str(event.status),
            after_ms=await delay_after_missed(context, job),
            stage=CHOOSE,
        )
    else:
        signal = Signal(key=key, event=event.event, reason=str(event.status), body=body)
    await store.signal(signal)


def _is_foreign(event: CallEvent, job: JobView, run: int) -> bool:
    """Return whether a run has placed no call, or another call than that of an event."""
    return job.kind not in {RING, ALERT} or is_of_another_call(event, find_run(job, run))


ROUTES = router("system: field_service", operations="field_")
"""Webhooks are authenticated by the provider's signature, not by a token."""


@ROUTES.post(
    "/field-service/hooks/{provider}/status", summary="Receive a call's status", status_code=204
)
async def receive_call_status(
    request: Request, service: TheService, context: TheContext, _: Public, provider: Provider
) -> Response:
    """Receive a call's status; a repeat has no further effect.

    404: there is no such provider. 401: the signature is wrong. 503: the store is unavailable.
    """
    webhook = await read_webhook(service, context.telephony, provider, request)
    event = context.telephony.voice(provider).read_status(webhook)
    if event is not None:
        await apply_call_event(service.store, context, event)
    return Response(status_code=204)


@ROUTES.post(
    "/field-service/hooks/{provider}/answer",
    summary="Receive a pressed key",
    response_class=Response,
)
async def receive_key_press(
    request: Request, service: TheService, context: TheContext, _: Public, provider: Provider
) -> Response:
    """Receive a technician's key: 1 accepts, 2 declines.

    The reply is the script for the provider to speak, in its own format; it says who has the job,
    or that the offer is unknown.

    Raises:
        InvalidValue: the webhook reports no keys, or names no offer.
    """
    webhook = await read_webhook(service, context.telephony, provider, request)
    voice = context.telephony.voice(provider)
    pressed = voice.read_pressed(webhook)
    if pressed is None or pressed.ref is None:
        message = "the webhook does not say which keys were pressed, or about which offer"
        raise InvalidValue(message)
    try:
        reply = await reply_to_keys(service.store, context, pressed.ref, pressed, webhook.url)
    except UnknownRecord:
        reply = Say(text="This offer is not known."), None
    script, answered = reply
    await _review_if_declined(service, context, answered, "keys", pressed.event)
    spoken = voice.speak(script)
    return Response(spoken.body, media_type=spoken.media_type)


@ROUTES.post(
    "/field-service/hooks/{provider}/texts",
    summary="Receive a technician's message",
    response_class=Response,
)
async def receive_text(
    request: Request, service: TheService, context: TheContext, _: Public, provider: Provider
) -> Response:
    """Receive a message from a technician's phone; the reply says whether they have the job.

    1, yes or accept takes the technician's open offer; 2, no or decline rejects it.
    """
    webhook = await read_webhook(service, context.telephony, provider, request)
    sender = context.telephony.text(provider)
    inbound = sender.read_inbound(webhook)
    if inbound is None:
        return Response(status_code=204)
    reply, answered = await reply_to_text(service.store, context, inbound)
    await _review_if_declined(service, context, answered, "text", inbound.event)
    body, media_type = sender.reply_text(reply)
    return Response(body, media_type=media_type)


async def _review_if_declined(
    service: Service, context: FieldContext, answered: Answered | None, *why: str
) -> None:
    """Review a request whose offer was declined: all remaining candidates may be busy."""
    if answered is not None and answered.verdict is AnswerEffect.DECLINED:
        await send_jobs(service, [review_now(context, answered.request.id, derived_id(*why))])
