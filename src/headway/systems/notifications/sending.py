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
from headway.systems.notifications.desk import Desk
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
from headway.systems.notifications.templates import forms_of

AWAY = "5s"
"""How long a notification is put off while the directory does not answer."""
FRESH_S, STALE_S = 0.1, 0.5
"""Opt-outs that were read so long before the provider's request are read again; if reading takes
longer than the second, nothing is sent. So one that was set half a second before a send holds."""
TELLS = 5
"""How often the store is told of an accepted message; after that its answer is lost."""

_log = logging.getLogger("headway.notifications")

Back = Next | Snooze | Mapping[str, str] | None
"""What a run of a notification returns."""


class _Sent(NamedTuple):
    """What became of a message for one address."""

    address: str
    outcome: Outcome | Withdrawn


async def deliver(desk: Desk, job: Job, args: Args) -> Back:
    """Send a notification by the channel of its stage, or say why not.

    Returns:
        None once it was handed over; the next channel, a later time, or that it was skipped.

    Raises:
        Dead: it cannot be sent, or is of no use any more.
        Retry: nothing was sent; it is tried again.
        LeaseLost: another run has it, and this one sent nothing.
    """
    channel = Channel(job.stage)
    timing = desk.parts.timing
    now = timing.wall_at()
    if args.expires_at is not None and now >= args.expires_at:
        raise Dead(_failed(desk, channel, "it expired before it was sent"))
    begun_s = timing.monotonic()
    try:
        found = await desk.reader.read(job.subject or "", args.template)
    except StoreError as away:
        _log.warning("notification %s is put off: %s", job.id, away)
        return Snooze(after=AWAY)
    recipient = found.recipient
    if recipient is None:
        raise Dead(_failed(desk, channel, f"there is no recipient {job.subject!r} any more"))
    why_not = _why_not(desk, recipient, channel, args.category)
    if why_not:
        return await _passed_over(desk, job, args, recipient, channel, why_not)
    if args.category not in desk.settings.urgent:
        until = quiet_until(recipient, now)
        if until is not None:
            return Snooze(after=f"{until - now}ms")
    messages = _messages(desk, job, args, found, recipient, channel)
    await job.hand_over(timeout=f"{desk.settings.answer_within}ms")
    handed_s = timing.monotonic()
    _count_lateness(desk, job, channel, timing.wall_at())
    wish = _Wish(desk, recipient.id, channel, args.category, begun_s, handed_s)
    with checking(wish.check):
        sent = await asyncio.gather(*(_send(desk, channel, message) for message in messages))
    await _retire(desk, recipient, channel, sent)
    return await _conclude(desk, job, args, channel, sent)


def _why_not(desk: Desk, recipient: Recipient, channel: Channel, category: str) -> str:
    """Why a channel is passed over; empty if it is not."""
    said = opted_out(recipient, channel, category)
    if said:
        return f"opted out of {said}"
    if not addresses(recipient, channel):
        return f"no {channel} address"
    return "" if channel in desk.senders else f"nothing sends by {channel}"


async def _passed_over(
    desk: Desk, job: Job, args: Args, recipient: Recipient, channel: Channel, why: str
) -> Back:
    following = args.after(channel)
    if following is not None:
        return Next(following.value)
    others = (Channel(one) for one in args.channels if one != channel)
    reasons = [one for one in (_why_not(desk, recipient, c, args.category) for c in others) if one]
    reason = "; ".join((*reasons, why))
    view = await desk.store.read(JobQuery(id=job.id)) if job.attempt > 1 else None
    runs = () if view is None else view.runs
    if any(one.outcome == "failed" and one.stage != channel for one in runs):
        # By a channel before nothing arrived; of this one only the wish is known.
        raise Dead(_failed(desk, channel, f"no channel is left: {reason}"))
    desk.tally.happened(Event.OUTCOME, f"{channel}:{Status.SKIPPED}")
    return {"status": Status.SKIPPED, "channel": channel, "reason": reason}


def _messages(
    desk: Desk, job: Job, args: Args, found: Found, recipient: Recipient, channel: Channel
) -> list[Message]:
    """The message for each address.

    Raises:
        Dead: it cannot be rendered.
    """
    said = Rendered(" ".join(args.title.split()), args.text, args.html)
    if args.template is not None:
        if found.template is None:
            raise Dead(_failed(desk, channel, f"there is no template {args.template!r} any more"))
        try:
            said = render(forms_of(found.template, channel), args.data)
        except InvalidValue as error:
            reason = f"template {args.template!r}, {channel}.{error.message}"
            raise Dead(_failed(desk, channel, reason)) from error
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
            unsubscribe_url=unsubscribe_url(desk, recipient.id, args.category),
        )
        for address in addresses(recipient, channel)
    ]


@dataclass(slots=True)
class _Wish:
    """What a recipient wants, as it was read last; see `last_moment`."""

    desk: Desk
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
        timing = self.desk.parts.timing
        begun_s = timing.monotonic()
        if begun_s - self.read_s <= FRESH_S:
            return False
        try:
            found = (await self.desk.reader.read(self.recipient, None)).recipient
        except StoreError as away:
            raise Withdrawn from away
        now_s = timing.monotonic()
        over = now_s - self.handed_s > self.desk.settings.answer_within / 1000
        if found is None or over or now_s - begun_s > STALE_S:
            raise Withdrawn
        if _why_not(self.desk, found, self.channel, self.category):
            raise Withdrawn
        self.read_s = begun_s
        return True


async def _send(desk: Desk, channel: Channel, message: Message) -> _Sent:
    """Send to one address; of several at once, so that a slow one takes no time from others."""
    outcome: Outcome | Withdrawn
    try:
        outcome = await desk.senders[channel].send(message)
    except Withdrawn as withdrawn:
        outcome = withdrawn
    # A sender that raises has a bug; whether it had sent by then is not known.
    except Exception as error:  # noqa: BLE001
        _log.exception("the sender of %s failed", channel)
        outcome = Unsure(f"{type(error).__name__}: {error}"[:300])
    return _Sent(message.to, outcome)


async def _conclude(
    desk: Desk, job: Job, args: Args, channel: Channel, sent: Sequence[_Sent]
) -> Back:
    """Record what became of a notification; several devices are one: any that took it decides.

    Raises:
        Dead: it was refused for ever, and no channel is left.
        Retry: nothing was sent.
    """
    outcomes = [one.outcome for one in sent]
    accepted = [one for one in outcomes if isinstance(one, Accepted)]
    if accepted:
        await _accepted(desk, job, channel, accepted)
        return None
    for one in outcomes:
        if isinstance(one, Unsure):
            desk.tally.happened(Event.OUTCOME, f"{channel}:{LOST}")
            _log.warning("notification %s: %s: %s", job.id, ANSWER_LOST, one.reason)
            said = Said(status=Status.SENT, channel=channel, reason=f"{ANSWER_LOST}: {one.reason}")
            await _tell(desk, Signal(key=job.ref, event=f"sent:{job.ref}", body=body_of(said)))
            return None
    for one in outcomes:
        if isinstance(one, Limited):
            desk.tally.happened(Event.OUTCOME, f"{channel}:{LIMITED}")
            closed_ms = one.retry_after_ms
            if closed_ms is None:
                closed_ms = desk.settings.channel(channel).closed_for
            job.close(slots_of(channel), after=f"{max(1, closed_ms)}ms", reason=one.reason[:500])
            return Snooze(after="0s")
    if any(isinstance(one, Withdrawn) for one in outcomes):
        # Nothing was sent; the next run reads anew, and decides.
        return Snooze(after="0s")
    away = next((one for one in outcomes if isinstance(one, Unavailable)), None)
    refused = "; ".join(dict.fromkeys(cast("Refused", one).reason for one in outcomes))
    tries = desk.settings.attempts * (args.channels.index(channel) + 1)
    following = args.after(channel)
    if away is not None and job.attempt < tries:
        desk.tally.happened(Event.OUTCOME, f"{channel}:{UNAVAILABLE}")
        why = f"{channel}: {away.reason}"
        raise Retry(why)
    reason = f"{channel}: {refused if away is None else away.reason}"
    if following is not None:
        desk.tally.happened(Event.OUTCOME, f"{channel}:{Status.FAILED}")
        raise Retry(reason, after="0s", stage=following.value)
    raise Dead(_failed(desk, channel, reason))


def _failed(desk: Desk, channel: Channel, reason: str) -> str:
    """Count a failure; its reason, as it is kept."""
    desk.tally.happened(Event.OUTCOME, f"{channel}:{Status.FAILED}")
    return reason[:1_000]


async def _accepted(desk: Desk, job: Job, channel: Channel, accepted: Sequence[Accepted]) -> None:
    """Record that a provider has taken it; then it awaits its delivery, and holds nothing."""
    desk.tally.happened(Event.OUTCOME, f"{channel}:{Status.SENT}")
    ids = [one.provider_id for one in accepted if one.provider_id is not None]
    body = body_of(Said(status=Status.SENT, channel=channel))
    event = f"sent:{job.ref}"
    if not ids:
        # Nothing will tell of its delivery.
        await _tell(desk, Signal(key=job.ref, event=event, body=body))
        return
    for n, id_ in enumerate(ids):
        signal = Signal(
            key=job.ref,
            event=f"{event}:{n}",
            kind=SignalKind.PROGRESS,
            body=body,
            extend_ms=desk.settings.delivery_within,
            known_as=known_as(id_),
        )
        await _tell(desk, signal)
    try:
        await job.give_back(slots_of(channel))
    except (LeaseLost, StoreError):
        _log.info("notification %s: its place was given back by others", job.id)


async def _tell(desk: Desk, signal: Signal) -> None:
    """Tell the store; if it cannot be told, reconciling reports the answer as lost.

    Raises:
        StoreError: it was away all the time.
    """
    for left in reversed(range(TELLS)):
        try:
            await desk.store.signal(signal)
        except StoreError:
            if not left:
                raise
            await desk.parts.timing.pause(1.0)
        else:
            return


async def _retire(
    desk: Desk, recipient: Recipient, channel: Channel, sent: Sequence[_Sent]
) -> None:
    for address, outcome in sent:
        if isinstance(outcome, Refused) and outcome.gone:
            await retire(desk, recipient.id, channel, address)


async def retire(desk: Desk, recipient: str, channel: Channel, address: str) -> None:
    """Take an address from a recipient that does not exist any more.

    If the directory is away it stays, and the next send finds it again.
    """
    try:
        async with desk.directory.change() as session:
            found = await session.get(Recipient, recipient, with_for_update=True)
            values = {} if found is None else without_address(found, channel, address)
            if found is not None and values:
                await RECIPIENTS.change(session, found, values, desk.parts.timing.wall_at())
                _log.info("recipient %s: a %s address does not exist any more", recipient, channel)
    except StoreError as away:
        _log.warning("recipient %s keeps a %s address that is gone: %s", recipient, channel, away)


def _count_lateness(desk: Desk, job: Job, channel: Channel, now: int) -> None:
    late_ms = max(0, now - job.claimed.due_at)
    bucket = next((str(one) for one in BUCKETS_MS if late_ms <= one), "inf")
    desk.tally.happened(Event.LATE, f"{channel}:{bucket}")
    if late_ms:
        desk.tally.happened(Event.LATE_MS, channel, late_ms)
