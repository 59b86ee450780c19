"""Deliveries: what providers and apps report about sent notifications.

Webhooks are verified before they are read: Twilio's by the tokens of `[telephony.twilio]`,
SendGrid's by the public keys of `[hooks.sendgrid]`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fastapi import Request, Response

from headway.contract.signals import Decided, Signal, SignalKind, SignalResult
from headway.contract.views import JobQuery, JobView
from headway.core.errors import InvalidState, InvalidValue
from headway.core.naming import check_name
from headway.core.state import FINAL, State
from headway.server.access import Public
from headway.server.hooks.request import HookRequest
from headway.server.hooks.sendgrid import MailEvent, read_events
from headway.server.routing import TheService, router
from headway.systems.jobs import ref_of
from headway.systems.notifications.context import NotifyContext, TheContext
from headway.systems.notifications.history import write_again
from headway.systems.notifications.mail import NO_SUCH_MAILBOX
from headway.systems.notifications.notification import (
    Channel,
    SendRecord,
    Status,
    body_of,
    is_notification,
    known_as,
    read_args,
    status_of,
)
from headway.systems.notifications.senders import NO_SUCH_PHONE
from headway.systems.notifications.sending import remove_address
from headway.systems.telephony.providers import Provider, read_webhook
from headway.systems.telephony.texts import TextProvider, TextStatus

_log = logging.getLogger("headway.notifications")

UNDELIVERED = frozenset({"bounce", "dropped"})
"""SendGrid's events after which a mail will not arrive."""

ROUTES = router("system: notifications", operations="notify_", prefix="/notifications/hooks")


@dataclass(frozen=True, slots=True)
class DeliveryEvent:
    """A provider's verified report about a message.

    Attributes:
        event: id of the event, the same for each repeat of the webhook.
        delivered: whether the message arrived; False if it will not.
        reason: why it will not arrive, in the provider's words; may be empty.
        gone: the message's address, if it no longer exists; otherwise empty.
        ref: id of the notification, if the webhook contains it; otherwise empty.
    """

    provider_id: str
    event: str
    delivered: bool
    reason: str
    gone: str = ""
    ref: str = ""


def read_text_delivery(texts: TextProvider, request: HookRequest) -> Sequence[DeliveryEvent]:
    """Return the final event of a text, from a verified webhook; empty while it is on its way."""
    update = texts.read_text_status(request)
    if update is None or not update.status.ended:
        return ()
    delivered = update.status is TextStatus.DELIVERED
    reason = "" if delivered else f"{update.status}, {update.reason}".removesuffix(", ")
    gone = update.to if update.code in NO_SUCH_PHONE else ""
    return (
        DeliveryEvent(update.message_id, update.event, delivered, reason, gone, update.ref or ""),
    )


def read_mail_delivery(request: HookRequest) -> Sequence[DeliveryEvent]:
    """Return the final events of messages, from a verified webhook of SendGrid, in order.

    An event with an id that no notification can have is skipped, so that later ones are applied.

    Raises:
        InvalidValue: the webhook is not a list of events.
    """
    return [
        DeliveryEvent(
            one.message_id,
            one.event,
            delivered=one.status == "delivered",
            reason="" if one.status == "delivered" else one.reason,
            gone=_gone(one),
            ref=one.ref or "",
        )
        for one in read_events(request)
        if one.message_id
        and _can_be_known(one.message_id)
        and one.status in {"delivered", *UNDELIVERED}
    ]


def _can_be_known(provider_id: str) -> bool:
    try:
        check_name("key", known_as(provider_id))
    except InvalidValue:
        return False
    return True


def _gone(event: MailEvent) -> str:
    # A block is temporary, whatever its code is.
    status = str(event.body.get("status", ""))
    blocked = event.body.get("type") == "blocked"
    gone = event.status == "bounce" and not blocked and status in NO_SUCH_MAILBOX
    return str(event.body.get("email", "")) if gone else ""


@ROUTES.post("/sendgrid", summary="Receive SendGrid's mail events", status_code=204)
async def receive_mail_events(
    request: Request, service: TheService, context: TheContext, _: Public
) -> Response:
    """Apply SendGrid's mail events; a repeated event has no further effect.

    No token is needed: SendGrid's signature is verified with the keys of [hooks.sendgrid]. 503: the
    store is unavailable, and SendGrid should send the events again.
    """
    webhook = await service.hooks.take("sendgrid", request)
    for event in read_mail_delivery(webhook):
        await apply_event(context, event)
    return Response(status_code=204)


@ROUTES.post("/{provider}/status", summary="Receive a text message's status", status_code=204)
async def receive_text_status(
    provider: Provider, request: Request, service: TheService, context: TheContext, _: Public
) -> Response:
    """Apply a status webhook; a repeat has no further effect.

    No token is needed: the provider's signature is verified. 503: the store is unavailable, and the
    provider should send the webhook again.
    """
    telephony = context.telephony
    webhook = await read_webhook(service, telephony, provider, request)
    for event in read_text_delivery(telephony.text(provider), webhook):
        await apply_event(context, event)
    return Response(status_code=204)


async def apply_event(context: NotifyContext, event: DeliveryEvent) -> SignalResult:
    """Apply a provider's verified event; a repeat has no further effect.

    A failure reported after the delivery is ignored, and the address stays.

    Returns:
        The store's reply; KEPT if no notification is known by that id yet.

    Raises:
        StoreError: the store is unavailable; the provider should send the event again.
    """
    key = known_as(event.provider_id)
    # A note finds the notification; if there is none yet, the store keeps it like any signal.
    seen = Signal(key=key, event=f"{event.event}:seen", kind=SignalKind.NOTE, label="webhook")
    found = await context.store.signal(seen)
    job = None if found.job is None else await context.store.read(JobQuery(id=found.job))
    if job is None and event.ref:
        # The provider's id is not recorded yet, or never will be if its answer was lost.
        job = await context.store.read(JobQuery(id=event.ref))
        if job is not None and (job.state is State.AWAITING or job.state in FINAL):
            key = ref_of(job)
        else:
            job = None
    if job is not None and not is_notification(job):
        return SignalResult.LATE
    stage = "" if job is None else _stage_of(job, key)
    if job is not None and not event.delivered and _has_arrived(job, stage):
        _log.info("failure after delivery ignored id=%s reason=%s", job.id, event.reason)
        return SignalResult.LATE
    if event.gone and job is not None:
        await remove_address(context, job.subject or "", Channel(stage), event.gone)
    if job is not None and not event.delivered and stage != job.stage:
        # Another channel has been tried since, and its outcome counts.
        return SignalResult.LATE
    return await _settle(context, key, job, event)


async def mark_delivered(context: NotifyContext, job: JobView) -> None:
    """Mark a notification as delivered because the app has shown it.

    Raises:
        InvalidState: the notification has not been sent.
    """
    ended = job.state in FINAL
    if not (ended or job.state is State.AWAITING) or all(one.handed_at is None for one in job.runs):
        message = f"the notification {'was not sent' if ended else 'has not been sent yet'}"
        raise InvalidState(message, hint="GET /notifications/{id} shows its status")
    run = ref_of(job)
    event = DeliveryEvent("", f"app:{run}", delivered=True, reason="")
    await _settle(context, run, job, event)


async def _settle(
    context: NotifyContext, key: str, job: JobView | None, what: DeliveryEvent
) -> SignalResult:
    status = Status.DELIVERED if what.delivered else Status.FAILED
    channel = "" if job is None else _stage_of(job, key)
    reason = f"{channel}: {what.reason}" if channel else what.reason
    following = None if job is None else read_args(job.args).after(job.stage)
    final = Signal(key=key, event=what.event)
    if what.delivered:
        final = replace(final, body=body_of(SendRecord(status=status, channel=channel)))
    elif following is None:
        final = replace(final, decided=Decided.DEAD, reason=reason or "undelivered")
    else:
        final = replace(
            final,
            decided=Decided.RETRY,
            reason=reason,
            after_ms=0,
            stage=following.value,
            gates=context.uses(following),
        )
    reply = await context.store.signal(final)
    result = reply.answer
    if result is SignalResult.LATE:
        # It has ended: a note records the event, and gives the status from then on.
        note = Signal(
            key=key,
            event=f"{what.event}:note",
            kind=SignalKind.NOTE,
            label=status.value,
            reason=what.reason[:500],
        )
        await context.store.signal(note)
        if reply.job is not None:
            # If the event is repeated, for example after a crash here, so are note and write.
            await write_again(context, reply.job, what.event)
    if result in {SignalResult.APPLIED, SignalResult.LATE}:
        context.count(channel, status)
    return result


def _stage_of(job: JobView, key: str) -> str:
    """Return the channel of the run with this key, which may not be the current run."""
    return next((one.stage for one in job.runs if key in one.keys), job.stage)


def _has_arrived(job: JobView, stage: str) -> bool:
    """Return whether the message of this channel has been delivered."""
    return stage == job.stage and status_of(job)[0] is Status.DELIVERED
