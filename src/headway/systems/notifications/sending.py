"""Sending: one run of a notification by one channel, at most once.

What may be tried again happens before the hand-over: the recipient and the template are read,
opt-outs and quiet hours are looked at, the text is rendered. Then the job is handed over, and only
then is the provider called; the opt-outs are read once more in the last moment, when the connection
is there. From there on only a definite "nothing was sent" leads to another try.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from headway.contract.signals import Signal, SignalKind
from headway.contract.views import JobQuery
from headway.core.errors import InvalidValue, LeaseLost, StoreError
from headway.runtime.answers import Dead, Next, Retry, Snooze
from headway.runtime.job import Job
from headway.systems.last_moment import Withdrawn, checking
from headway.systems.notifications.context import NotifyContext
from headway.systems.notifications.message_templates import forms_of
from headway.systems.notifications.names import (
    ANSWER_LOST,
    BUCKETS_MS,
    LIMITED,
    LOST,
    UNAVAILABLE,
    Channel,
    Event,
    Priority,
    Status,
    known_as,
    slots_of,
)
from headway.systems.notifications.notification import Args, Said, body_of
from headway.systems.notifications.opt_outs import unsubscribe_url
from headway.systems.notifications.preferences import (
    addresses,
    opted_out,
    quiet_until,
    without_address,
)
from headway.systems.notifications.reading import Found
from headway.systems.notifications.recipients import RECIPIENTS
from headway.systems.notifications.records import Recipient
from headway.systems.notifications.rendering import Rendered, render
from headway.systems.notifications.senders.sender import (
    Accepted,
    Limited,
    Message,
    Outcome,
    Refused,
    Unavailable,
    Unsure,
)

AWAY = "5s"
"""How long a notification is put off while the directory does not answer."""
FRESH_S, STALE_S = 0.1, 0.5
"""Opt-outs that were read so long before the provider's request are read again; if reading takes
longer than the second, nothing is sent. So one that was set half a second before a send holds."""
TRIES = 5
"""How often an accepted message is reported to the store; after that its answer is lost."""

_log = logging.getLogger("headway.notifications")

Back = Next | Snooze | Mapping[str, str] | None
"""What a run of a notification returns."""


class _Sent(NamedTuple):
    """The outcome of a message for one address."""

    address: str
    outcome: Outcome | Withdrawn


async def deliver(context: NotifyContext, job: Job, args: Args) -> Back:
    """Send a notification by the channel of its stage, or say why not.

    Returns:
        None once it was handed over; the next channel, a later time, or that it was skipped.

    Raises:
        Dead: it cannot be sent, or is of no use any more.
        Retry: nothing was sent; it is tried again.
        LeaseLost: another run has it, and this one sent nothing.
    """
    channel = Channel(job.stage)
    timing = context.parts.timing
    now = timing.wall_at()
    if args.expires_at is not None and now >= args.expires_at:
        raise Dead(_failed(context, channel, "it expired before it was sent"))
    begun_s = timing.monotonic()
    try:
        found = await context.reader.read(job.subject or "", args.template)
    except StoreError as away:
        _log.warning("notification %s is put off: %s", job.id, away)
        return Snooze(after=AWAY, reason=f"recipients cannot be read: {away}")
    recipient = found.recipient
    if recipient is None:
        raise Dead(_failed(context, channel, f"there is no recipient {job.subject!r} any more"))
    why_not = _why_not(context, recipient, channel, args.category)
    if why_not:
        return await _passed_over(context, job, args, recipient, channel, why_not)
    if args.category not in context.settings.urgent:
        until = quiet_until(recipient, now)
        if until is not None:
            return Snooze(after=f"{until - now}ms", reason="quiet hours")
    messages = _messages(context, job, args, found, recipient, channel)
    await job.hand_over(timeout=f"{context.settings.answer_within}ms")
    handed_s = timing.monotonic()
    _count_lateness(context, job, channel, timing.wall_at())
    wish = _Wish(context, recipient.id, channel, args.category, begun_s, handed_s)
    with checking(wish.check):
        sent = await asyncio.gather(*(_send(context, channel, message) for message in messages))
    for address, outcome in sent:
        if isinstance(outcome, Refused) and outcome.gone:
            await retire(context, recipient.id, channel, address)
    return await _conclude(context, job, args, channel, sent)


def _why_not(context: NotifyContext, recipient: Recipient, channel: Channel, category: str) -> str:
    """Why a channel is passed over; empty if it is not."""
    said = opted_out(recipient, channel, category)
    if said:
        return f"opted out of {said}"
    if not addresses(recipient, channel):
        return f"no {channel} address"
    return "" if channel in context.senders else f"nothing sends by {channel}"


async def _passed_over(
    context: NotifyContext,
    job: Job,
    args: Args,
    recipient: Recipient,
    channel: Channel,
    why: str,
) -> Back:
    following = args.after(channel)
    if following is not None:
        return Next(following.value)
    others = (Channel(one) for one in args.channels if one != channel)
    reasons = [
        one for one in (_why_not(context, recipient, c, args.category) for c in others) if one
    ]
    reason = "; ".join((*reasons, why))
    view = await context.store.read(JobQuery(id=job.id)) if job.attempt > 1 else None
    runs = () if view is None else view.runs
    if any(one.outcome == "failed" and one.stage != channel for one in runs):
        # By a channel before nothing arrived; of this one only the wish is known.
        raise Dead(_failed(context, channel, f"no channel is left: {reason}"))
    context.tally.happened(Event.OUTCOME, f"{channel}:{Status.SKIPPED}")
    return {"status": Status.SKIPPED, "channel": channel, "reason": reason}


def _messages(
    context: NotifyContext,
    job: Job,
    args: Args,
    found: Found,
    recipient: Recipient,
    channel: Channel,
) -> list[Message]:
    """The message for each address.

    Raises:
        Dead: it cannot be rendered.
    """
    said = Rendered(" ".join(args.title.split()), args.text, args.html)
    if args.template is not None:
        if found.template is None:
            raise Dead(
                _failed(context, channel, f"there is no template {args.template!r} any more")
            )
        try:
            said = render(forms_of(found.template, channel), args.data)
        except InvalidValue as error:
            reason = f"template {args.template!r}, {channel}.{error.message}"
            raise Dead(_failed(context, channel, reason)) from error
    return [
        Message(
            id=job.id,
            channel=channel,
            to=address,
            title=said.title,
            text=said.text,
            html=said.html,
            data=args.data,
            priority=Priority(args.level).value,
            category=args.category,
            expires_at=args.expires_at,
            unsubscribe_url=unsubscribe_url(context, recipient.id, args.category),
        )
        for address in addresses(recipient, channel)
    ]


@dataclass(slots=True)
class _Wish:
    """What a recipient wants, as it was read last; see `last_moment`."""

    context: NotifyContext
    recipient: str
    channel: Channel
    category: str
    read_s: float
    handed_s: float

    async def check(self) -> bool:
        """Read the opt-outs again, unless they were read just now.

        Raises:
            Withdrawn: the recipient has opted out, or that cannot be read in time, or the answer
                is reported as lost by now.
        """
        timing = self.context.parts.timing
        begun_s = timing.monotonic()
        if begun_s - self.read_s <= FRESH_S:
            return False
        try:
            found = (await self.context.reader.read(self.recipient, None)).recipient
        except StoreError as away:
            raise Withdrawn from away
        now_s = timing.monotonic()
        over = now_s - self.handed_s > self.context.settings.answer_within / 1000
        if found is None or over or now_s - begun_s > STALE_S:
            raise Withdrawn
        if _why_not(self.context, found, self.channel, self.category):
            raise Withdrawn
        self.read_s = begun_s
        return True


async def _send(context: NotifyContext, channel: Channel, message: Message) -> _Sent:
    """Send to one address; of several at once, so that a slow one takes no time from others."""
    outcome: Outcome | Withdrawn
    try:
        outcome = await context.senders[channel].send(message)
    except Withdrawn as withdrawn:
        outcome = withdrawn
    # A sender that raises has a bug; whether it had sent by then is not known.
    except Exception as error:  # noqa: BLE001
        _log.exception("the sender of %s failed", channel)
        outcome = Unsure(f"{type(error).__name__}: {error}"[:300])
    return _Sent(message.to, outcome)


async def _conclude(
    context: NotifyContext, job: Job, args: Args, channel: Channel, sent: Sequence[_Sent]
) -> Back:
    """Record the outcome of a notification; of several devices, one that accepted it decides.

    Raises:
        Dead: it was refused permanently, and no channel is left.
        Retry: nothing was sent.
    """
    outcomes = [one.outcome for one in sent]
    accepted = [one for one in outcomes if isinstance(one, Accepted)]
    if accepted:
        await _accepted(context, job, channel, accepted)
        return None
    for one in outcomes:
        if isinstance(one, Unsure):
            context.tally.happened(Event.OUTCOME, f"{channel}:{LOST}")
            _log.warning("notification %s: %s: %s", job.id, ANSWER_LOST, one.reason)
            said = Said(status=Status.SENT, channel=channel, reason=f"{ANSWER_LOST}: {one.reason}")
            await _signal(context, Signal(key=job.ref, event=f"sent:{job.ref}", body=body_of(said)))
            return None
    for one in outcomes:
        if isinstance(one, Limited):
            context.tally.happened(Event.OUTCOME, f"{channel}:{LIMITED}")
            closed_ms = one.retry_after_ms
            if closed_ms is None:
                closed_ms = context.settings.channel(channel).closed_for
            job.close(slots_of(channel), after=f"{max(1, closed_ms)}ms", reason=one.reason[:500])
            return Snooze(after="0s", reason=f"{channel}: {one.reason}")
    if any(isinstance(one, Withdrawn) for one in outcomes):
        # Nothing was sent; the next run reads again, and decides.
        return Snooze(after="0s", reason="preferences changed or could not be read in time")
    away = next((one for one in outcomes if isinstance(one, Unavailable)), None)
    refused = "; ".join(dict.fromkeys(cast("Refused", one).reason for one in outcomes))
    tries = context.settings.attempts * (args.channels.index(channel) + 1)
    following = args.after(channel)
    if away is not None and job.attempt < tries:
        context.tally.happened(Event.OUTCOME, f"{channel}:{UNAVAILABLE}")
        why = f"{channel}: {away.reason}"
        raise Retry(why)
    reason = f"{channel}: {refused if away is None else away.reason}"
    if following is not None:
        context.tally.happened(Event.OUTCOME, f"{channel}:{Status.FAILED}")
        raise Retry(reason, after="0s", stage=following.value)
    raise Dead(_failed(context, channel, reason))


def _failed(context: NotifyContext, channel: Channel, reason: str) -> str:
    """Count a failure; its reason, as it is kept."""
    context.tally.happened(Event.OUTCOME, f"{channel}:{Status.FAILED}")
    return reason[:1_000]


async def _accepted(
    context: NotifyContext, job: Job, channel: Channel, accepted: Sequence[Accepted]
) -> None:
    """Record that a provider has taken it; then it awaits its delivery, and holds nothing."""
    context.tally.happened(Event.OUTCOME, f"{channel}:{Status.SENT}")
    ids = [one.provider_id for one in accepted if one.provider_id is not None]
    body = body_of(Said(status=Status.SENT, channel=channel))
    event = f"sent:{job.ref}"
    if not ids:
        # No event will report its delivery.
        await _signal(context, Signal(key=job.ref, event=event, body=body))
        return
    for n, id_ in enumerate(ids):
        signal = Signal(
            key=job.ref,
            event=f"{event}:{n}",
            kind=SignalKind.PROGRESS,
            body=body,
            extend_ms=context.settings.delivery_within,
            known_as=known_as(id_),
        )
        await _signal(context, signal)
    try:
        await job.give_back(slots_of(channel))
    except (LeaseLost, StoreError):
        _log.info("notification %s: its place was given back by others", job.id)


async def _signal(context: NotifyContext, signal: Signal) -> None:
    """Send a signal to the store; if that fails, reconciling reports the answer as lost.

    Raises:
        StoreError: it was away all the time.
    """
    for left in reversed(range(TRIES)):
        try:
            await context.store.signal(signal)
        except StoreError:
            if not left:
                raise
            await context.parts.timing.pause(1.0)
        else:
            return


async def retire(context: NotifyContext, recipient: str, channel: Channel, address: str) -> None:
    """Take an address from a recipient that does not exist any more.

    If the directory is away it stays, and the next send finds it again.
    """
    try:
        async with context.directory.change() as session:
            found = await session.get(Recipient, recipient, with_for_update=True)
            values = {} if found is None else without_address(found, channel, address)
            if found is not None and values:
                await RECIPIENTS.change(session, found, values, context.parts.timing.wall_at())
                _log.info("recipient %s: a %s address does not exist any more", recipient, channel)
    except StoreError as away:
        _log.warning("recipient %s keeps a %s address that is gone: %s", recipient, channel, away)


def _count_lateness(context: NotifyContext, job: Job, channel: Channel, now: int) -> None:
    late_ms = max(0, now - job.claimed.due_at)
    bucket = next((str(one) for one in BUCKETS_MS if late_ms <= one), "inf")
    context.tally.happened(Event.LATE, f"{channel}:{bucket}")
    if late_ms:
        context.tally.happened(Event.LATE_MS, channel, late_ms)
