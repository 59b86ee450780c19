"""Calls and messages to technicians about an offer, at most once; and alerts to dispatchers.

A line stays busy until its call ends. If no webhook arrives for a while, the provider is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import NoReturn

from apprise import NotifyType

from headway.contract.signals import Signal, SignalKind, SignalResult
from headway.contract.views import JobQuery, JobView, StatsQuery
from headway.core.errors import InvalidValue, ProviderRefused, ProviderUnsure, StoreUnavailable
from headway.core.state import State
from headway.runtime.handler_results import Dead, Ended, Next, Retry, Running, Snooze, Unknown
from headway.runtime.job import Job
from headway.runtime.reconciliation import Awaited
from headway.runtime.records import encode
from headway.server.alerts.apprise_sink import AppriseAddress
from headway.systems.field_service.context import DIRECTORY_RETRY, FieldContext
from headway.systems.field_service.records import User
from headway.systems.field_service.request import LINES, NUMBER_REFUSED, is_open, run_of, user_of
from headway.systems.field_service.settings import FieldSettings
from headway.systems.telephony.texts import TextOrder
from headway.systems.telephony.voice import (
    Ask,
    CallEvent,
    CallOrder,
    NotFound,
    Say,
    Sought,
    Voice,
    call_of,
)

ASK_EACH_S = 10
"""Time without a webhook until the provider is asked."""
ASK_WITHIN = "1m"
"""Time after that until the call's job ends, if no worker can ask."""
BEGINS_S = 10
"""Maximum time from the hand-over to placing the call; a stalled worker may exceed it."""
LISTED_S = 15
"""Time until a provider lists a call that it was asked to place."""
SPARE_S = 60
"""Margin on top of ringing and talking time until a call must have ended."""
UNSURE = "deadline"
"""Reason of a call with an unknown outcome; the offer's own timeout decides."""


def longest_ms(settings: FieldSettings) -> int:
    """Return the maximum duration of a call, with a margin."""
    return settings.ring + settings.call_limit + SPARE_S * 1000


def given_up_ms(settings: FieldSettings) -> int:
    """Return the time from the hand-over after which line and technician are freed in any case."""
    return 2 * longest_ms(settings)


def certain_ms(voice: Voice) -> int:
    """Return the time from the hand-over after which an unlisted call was never placed."""
    return (BEGINS_S + LISTED_S) * 1000 + voice.answers_ms


def _answer(voice: Voice, event: CallEvent | NotFound, past_ms: int) -> Running | Ended:
    if isinstance(event, NotFound):
        unlisted_ms = certain_ms(voice) - past_ms
        if unlisted_ms > 0:
            return Running(extend=timedelta(milliseconds=unlisted_ms))
        return Ended("dead", reason=UNSURE)
    if not event.status.ended:
        # Hanging up needs the call's id.
        known_as = f"{voice.name}:{event.call_id}"
        return Running(extend=timedelta(seconds=ASK_EACH_S), known_as=known_as)
    body = {"status": str(event.status), "call_id": event.call_id, "asked": True}
    return Ended("succeeded", body=body, reason=str(event.status))


async def _sought(context: FieldContext, awaited: Awaited, number: str, handed_at: int) -> Sought:
    view = await context.store.read(JobQuery(id=awaited.id))
    runs = view.runs if view is not None else ()
    known = {one.run: call_of(one) for one in runs}
    mine = known.pop(awaited.run, None)
    return Sought(
        ref=awaited.ref,
        to=str(awaited.args.get("to", "")),
        from_=number,
        since=handed_at,
        call_id=mine[1] if mine else None,
        others=[one[1] for one in known.values() if one],
    )


REFUSED_AGAIN = "5s"
SPARE_TEXT_MS = 5_000
"""Margin on top of the provider's reply time; after it, a message counts as possibly sent."""
NOT_ASKED = {"asked": False}


class Ring:
    """The handlers of calls and messages."""

    def __init__(self, context: FieldContext) -> None:
        self._context = context

    async def ring(
        self, job: Job, *, to: str, text: str, offer: str, stands_ms: int, candidate: str = ""
    ) -> object:
        """Call the technician if the offer is still open now that a line is free.

        The offer's full time starts here: the wait for a line does not count.

        Args:
            offer: reference of the offer's run.
            stands_ms: how long the offer stays open from now on.
            candidate: id of the technician; part of the name of the lock on calls to them.

        Raises:
            Retry: the provider currently takes no calls.
            Dead: the provider refused this call.
        """
        del candidate
        if not await self._extend_offer(offer, stands_ms):
            return NOT_ASKED
        hook = f"/hooks/{self._context.voice.name}/answer?ref={offer}"
        script = Ask(text=text, answer_url=self._context.url(hook))
        await self.dial(job, to, script, within_ms=ASK_EACH_S * 1000)
        return None

    async def dial(self, job: Job, to: str, script: Ask | Say, *, within_ms: int) -> None:
        """Place one call on the line that the job holds; webhooks report its progress.

        Args:
            within_ms: time from the hand-over within which the provider must report something.

        Raises:
            Retry: the provider currently takes no calls.
            Dead: the provider refused this call.
        """
        settings, voice = self._context.settings, self._context.voice
        timing, started = self._context.timing, self._context.timing.monotonic()
        await job.hand_over(timeout=timedelta(milliseconds=within_ms))
        if timing.monotonic() - started > BEGINS_S:
            # `ask` may soon conclude from the provider's list that no call was placed.
            reason = "the worker stalled before the call; none was placed"
            raise Retry(reason, after=REFUSED_AGAIN)
        order = CallOrder(
            ref=job.ref,
            to=to,
            from_=job.permits[LINES],
            script=script,
            status_url=self._context.url(f"/hooks/{voice.name}/status?ref={job.ref}"),
            ring_s=settings.ring // 1000,
            limit_s=settings.call_limit // 1000,
        )
        try:
            dialled = await voice.dial(order)
        except ProviderRefused as refused:
            _settle_refused(refused)
        except ProviderUnsure:
            # There may be a call: webhooks will report it, or the provider when asked.
            return
        await job.known_as(f"{voice.name}:{dialled.call_id}")

    async def _extend_offer(self, offer: str, stands_ms: int) -> bool:
        """Restart the time of an open offer, once; return whether it is still open."""
        store = self._context.store
        reply = await store.signal(
            Signal(
                key=offer,
                event=f"line:{offer}",
                kind=SignalKind.PROGRESS,
                extend_ms=stands_ms,
                offer=True,
            )
        )
        if reply.answer is not SignalResult.ALREADY:
            return reply.answer is SignalResult.APPLIED
        return await self._is_open(offer)

    async def _is_open(self, offer: str) -> bool:
        request, run = run_of(offer)
        view = await self._context.store.read(JobQuery(id=request))
        return view is not None and view.run == run and is_open(view)

    async def ask(self, awaited: Awaited) -> Running | Ended | Unknown:
        """Ask the provider for the state of a call to a technician.

        The line and the technician stay locked until the call is known to have ended or never to
        have been placed, but no longer than `given_up_ms`.

        Args:
            awaited: the call's job, in doubt or at its deadline.
        """
        context = self._context
        if awaited.handed_at is None:
            return Unknown()
        handed_at = int(awaited.handed_at.timestamp() * 1000)
        # Measured before asking: a call may start while the provider searches.
        past_ms = (await context.store.read(StatsQuery())).now - handed_at
        if past_ms >= given_up_ms(context.settings):
            return Ended("dead", reason=UNSURE)
        number = awaited.permits.get(LINES, "")
        if number not in context.settings.lines:
            return Running(extend=timedelta(seconds=ASK_EACH_S))
        voice = context.voice
        try:
            event = await voice.look_up(await _sought(context, awaited, number, handed_at))
        except ProviderUnsure:
            return Running(extend=timedelta(seconds=ASK_EACH_S))
        return _answer(voice, event, past_ms)

    async def text(self, job: Job, to: str, text: str, offer: str = "") -> object:
        """Send a message; one that may have been sent is not sent again.

        Args:
            offer: reference of the offer that the message makes; empty if it makes none. Once it is
                over, nothing is sent: the reply would answer another offer.

        Raises:
            Dead: there is no provider or no number to send from, or the provider refused this
                message.
            Retry: the provider currently takes no messages.
        """
        settings = self._context.settings
        if settings.text_provider is None:
            reason = "refused: no provider of messages is configured"
            raise Dead(reason)
        if settings.text_from is None:
            reason = "refused: no number to send messages from"
            raise Dead(reason)
        if offer and not await self._is_open(offer):
            return NOT_ASKED
        texts = self._context.telephony.text(settings.text_provider)
        order = TextOrder(ref=job.ref, to=to, from_=settings.text_from, text=text)
        await job.hand_over(timeout=timedelta(milliseconds=texts.answers_ms + SPARE_TEXT_MS))
        try:
            message_id = await texts.send(order)
        except ProviderRefused as refused:
            _settle_refused(refused)
        except ProviderUnsure:
            return None
        await self._context.store.signal(
            Signal(
                key=job.ref,
                event=f"sent:{job.ref}",
                reason="sent",
                body=encode("body", {"message_id": message_id}),
            )
        )
        return None


def _settle_refused(refused: ProviderRefused) -> NoReturn:
    """Turn a provider's refusal into the job's outcome.

    Raises:
        Retry: the provider currently takes no calls or messages.
        Dead: the provider refused this one.
    """
    if refused.concerns == "sender":
        reason = f"{NUMBER_REFUSED}: {refused.message}"
        raise Dead(reason) from refused
    reason = f"refused: {refused.message}"
    if refused.concerns != "provider":
        raise Dead(reason) from refused
    after = refused.retry_after_ms
    wait = REFUSED_AGAIN if after is None else timedelta(milliseconds=after)
    raise Retry(reason, after=wait) from refused


CHOOSE, CALL = "choose", "call"
"""Stages of an alert; only a call needs a line."""
TITLE = "No technician accepts a service request"
NEXT_CHANNEL_MS = 1_000
"""Delay before an alert is sent by the user's next channel."""
NOT_NEEDED = {"needed": False}


class DispatcherAlert:
    """The handlers of `alert_dispatcher`."""

    def __init__(self, context: FieldContext) -> None:
        self._context = context
        self._ring = Ring(context)

    async def choose(self, job: Job, user: str, text: str) -> object:
        """Notify the dispatcher by the channel of this attempt, while the request is pending.

        An alert whose delivery is unknown is sent again, by the next channel if there is one: a
        duplicate costs less than a lost alert.

        Raises:
            Retry: this channel did not accept the alert.
            Dead: the user no longer exists, or has no channel.
        """
        try:
            channels = await self._channels(user)
        except StoreUnavailable:
            return Snooze(after=DIRECTORY_RETRY)
        if not await self._is_needed(job):
            return NOT_NEEDED
        channel = channels[(job.attempt - 1) % len(channels)]
        if channel.startswith("call:") and self._context.settings.lines:
            return Next(CALL)
        try:
            return await self._send(job, channel, text)
        except (Dead, Retry) as failed:
            after = _pause(job, channels)
            raise Retry(failed.reason, after=after) from failed

    async def call(self, job: Job, user: str, text: str) -> object:
        """Call the dispatcher, and speak the alert twice.

        Raises:
            Retry: the provider will not place the call.
            Dead: the user no longer exists, or has no channel.
        """
        try:
            channels = await self._channels(user)
        except StoreUnavailable:
            return Snooze(after=DIRECTORY_RETRY)
        if not await self._is_needed(job):
            return NOT_NEEDED
        scheme, _, phone = channels[(job.attempt - 1) % len(channels)].partition(":")
        if scheme != "call":
            return Next(CHOOSE)
        try:
            script = Say(text=f"{text} I repeat. {text}")
            await self._ring.dial(job, phone, script, within_ms=longest_ms(self._context.settings))
        except (Dead, Retry) as failed:
            after = _pause(job, channels)
            raise Retry(failed.reason, after=after, stage=CHOOSE) from failed
        return None

    async def _send(self, job: Job, channel: str, text: str) -> object:
        """Send an alert by message or through apprise.

        Raises:
            Retry: this channel does not accept it now, or needs a line.
            Dead: the provider refused the message.
        """
        scheme, _, rest = channel.partition(":")
        if scheme == "text":
            return await self._ring.text(job, rest, text)
        if scheme == "call":
            reason = "no line to call from"
            raise Retry(reason)
        await self._notify(channel, text)
        return {"channel": scheme}

    async def _is_needed(self, job: Job) -> bool:
        """Return whether the request is still pending; a dispatcher may have dealt with it."""
        request = await self._context.store.read(JobQuery(id=job.subject or ""))
        return request is None or request.state is State.DEAD

    async def _channels(self, user: str) -> Sequence[str]:
        """Return the channels of a user, at least one.

        Raises:
            Dead: the user no longer exists, or has no channel.
        """
        async with self._context.directory.read() as session:
            found = await session.get(User, user)
        if found is None or not found.channels:
            reason = "the user no longer exists" if found is None else "the user has no channel"
            raise Dead(reason)
        return found.channels

    async def _notify(self, url: str, text: str) -> None:
        """Send through apprise.

        Raises:
            Retry: the alert was not accepted. The reason never contains the URL, whose path is
                often a secret.
        """
        try:
            address = AppriseAddress(url, "the channel")
        except InvalidValue as error:
            raise Retry(error.message) from None
        # Apprise's async API logs URLs.
        if not await asyncio.to_thread(address.send, TITLE, text, NotifyType.WARNING):
            reason = f"{url.partition(':')[0]} did not accept the alert"
            raise Retry(reason)


def _pause(job: Job, channels: Sequence[str]) -> timedelta | None:
    after_ms = next_channel_ms(job.attempt, len(channels))
    return None if after_ms is None else timedelta(milliseconds=after_ms)


def next_channel_ms(attempt: int, channels: int) -> int | None:
    """Return the delay after an alert's failed attempt.

    Returns:
        None once each channel has been tried: the kind's backoff, so that neither an outage of a
        provider uses up all attempts in seconds, nor a dispatcher is called again and again.
    """
    return NEXT_CHANNEL_MS if attempt % max(1, channels) else None


async def delay_after_missed(context: FieldContext, alert: JobView) -> int | None:
    """Return the delay after a call of an alert that did not reach the dispatcher, in ms.

    Returns:
        As `next_channel_ms`; None if the directory is unavailable.
    """
    try:
        async with context.directory.read() as session:
            user = await session.get(User, user_of(alert))
    except StoreUnavailable:
        return None
    return None if user is None else next_channel_ms(alert.attempt, len(user.channels))
