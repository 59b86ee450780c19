"""Deliveries: what providers and apps say of a notification that was sent."""

from __future__ import annotations

import logging

from sqlalchemy import select

from headway.contract.signals import Decided, Heard, Signal, SignalKind
from headway.contract.views import JobQuery, JobView
from headway.core.errors import InvalidState
from headway.core.state import FINAL, State
from headway.systems.notifications.desk import Desk
from headway.systems.notifications.names import NOTIFICATION, Channel, Event, Status, known_as
from headway.systems.notifications.notification import Said, body_of, read_args
from headway.systems.notifications.preferences import addresses
from headway.systems.notifications.recipients import RECIPIENTS
from headway.systems.notifications.records import Recipient
from headway.systems.notifications.senders.sender import DeliveryEvent
from headway.systems.notifications.sending import retire

_log = logging.getLogger("headway.notifications")


async def hear(desk: Desk, event: DeliveryEvent) -> Heard:
    """Apply what a provider's verified webhook says; the same again has no further effect.

    Returns:
        What became of it; KEPT if no notification is known by that id yet.

    Raises:
        StoreError: the store is away; the provider is to send it again.
    """
    key = known_as(event.provider_id)
    # A note finds the notification; of one that is not known yet it is kept, as what follows is.
    seen = Signal(key=key, event=f"{event.event}:seen", kind=SignalKind.NOTE, label="webhook")
    found = await desk.store.signal(seen)
    job = None if found.job is None else await desk.store.read(JobQuery(id=found.job))
    if job is None and event.ref:
        # The provider's id is not recorded yet; never, if its answer was lost.
        job = await desk.store.read(JobQuery(id=event.ref))
        if job is not None and (job.state is State.AWAITING or job.state in FINAL):
            key = f"{job.id}:{job.run}"
        else:
            job = None
    if job is not None and job.kind != NOTIFICATION:
        return Heard.LATE
    stage = "" if job is None else _stage_of(job, key)
    if event.gone and job is not None:
        await _retire_sole(desk, job, Channel(stage))
    if job is not None and not event.delivered and stage != job.stage:
        # Another channel has been tried since, and its word counts.
        return Heard.LATE
    return await _settle(desk, key, event.event, job, event)


async def delivered(desk: Desk, job: JobView) -> None:
    """Apply that the app has shown a notification.

    Raises:
        InvalidState: it was not sent.
        StoreError: the store is away.
    """
    if job.state not in FINAL and job.state is not State.AWAITING:
        message = "the notification was not sent yet"
        raise InvalidState(message, hint="GET /notifications/{id} shows its status")
    event = DeliveryEvent(
        provider_id="", event=f"app:{job.id}:{job.run}", delivered=True, reason="", gone=False
    )
    await _settle(desk, f"{job.id}:{job.run}", event.event, job, event)


async def _settle(
    desk: Desk, key: str, event: str, job: JobView | None, what: DeliveryEvent
) -> Heard:
    status = Status.DELIVERED if what.delivered else Status.FAILED
    channel = "" if job is None else job.stage
    final = Signal(key=key, event=event, body=body_of(Said(status=status, channel=channel)))
    if not what.delivered:
        following = None if job is None else read_args(job.args).after(job.stage)
        reason = f"{channel}: {what.reason}" if channel else what.reason
        final = Signal(key=key, event=event, decided=Decided.DEAD, reason=reason or "undelivered")
        if following is not None:
            final = Signal(
                key=key,
                event=event,
                decided=Decided.RETRY,
                reason=reason,
                after_ms=0,
                stage=following.value,
                gates=desk.uses(following),
            )
    heard = (await desk.store.signal(final)).answer
    if heard is Heard.LATE:
        # It has ended: then it is told beside its end, and is its status from then on.
        note = Signal(
            key=key,
            event=f"{event}:note",
            kind=SignalKind.NOTE,
            label=status.value,
            reason=what.reason[:500],
        )
        await desk.store.signal(note)
    if heard in {Heard.APPLIED, Heard.LATE}:
        desk.tally.happened(Event.OUTCOME, f"{channel}:{status}")
    return heard


def _stage_of(job: JobView, key: str) -> str:
    """The channel of the run that a provider means; not the one that is tried by now."""
    return next((one.stage for one in job.runs if key in one.keys), job.stage)


async def _retire_sole(desk: Desk, job: JobView, channel: Channel) -> None:
    """Retire the address that a notification was sent to; of several devices it is not known."""
    found = (await desk.reader.read(job.subject or "", None)).recipient
    if found is None:
        return
    known = addresses(found, channel)
    if len(known) == 1:
        await retire(desk, found.id, channel, known[0])


async def set_sms_opt_out(desk: Desk, phone: str) -> int:
    """Opt all recipients with a telephone number out of SMS; again it changes nothing.

    Returns:
        How many recipients have that number.

    Raises:
        StoreUnavailable: the directory is away; nothing was written.
    """
    now = desk.parts.timing.wall_at()
    async with desk.directory.change() as session:
        asked = select(Recipient).where(Recipient.phone == phone).order_by(Recipient.id)
        found = list(await session.scalars(asked.with_for_update()))
        for one in found:
            said = [*one.preferences.get("opt_out", ()), str(Channel.SMS)]
            values = {"preferences": {**one.preferences, "opt_out": list(dict.fromkeys(said))}}
            await RECIPIENTS.change(session, one, values, now)
    _log.info("sms opt-out recipients=%d", len(found))
    return len(found)
