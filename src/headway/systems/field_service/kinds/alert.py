"""An alert to one dispatcher: by one channel after another until one takes it."""

from __future__ import annotations

import asyncio

from apprise import NotifyType

from headway.core.errors import InvalidValue, StoreUnavailable, UnknownRecord
from headway.runtime.answers import Dead, Next, Retry, Snooze
from headway.runtime.job import Job
from headway.server.alerts.apprise_sink import AppriseAddress
from headway.systems.field_service.context import FieldContext
from headway.systems.field_service.kinds.ring import Ring, Text, longest_ms
from headway.systems.field_service.kinds.turn import AWAY_AGAIN
from headway.systems.field_service.users import USERS
from headway.systems.telephony.voice import Say

CHOOSE, CALL = "choose", "call"
"""The stages: a line is asked for only if the channel is a call."""
TITLE = "No technician accepts a service request"


class Alert:
    """The handlers of `alert_dispatcher`."""

    def __init__(self, context: FieldContext) -> None:
        self._context = context
        self._ring = Ring(context)
        self._text = Text(context)

    async def choose(self, job: Job, user: str, text: str) -> object:
        """Notify the dispatcher by the channel of this attempt.

        An alert whose delivery is unknown is sent again, by the next channel if there is one: a
        duplicate costs less than a lost alert.

        Raises:
            Retry: this channel did not take it.
            Dead: the user is gone, or has no channel.
        """
        try:
            channel = await self._channel(job, user)
        except StoreUnavailable:
            return Snooze(after=AWAY_AGAIN)
        scheme, _, rest = channel.partition(":")
        if scheme == "call" and self._context.settings.lines:
            return Next(CALL)
        if scheme == "text":
            try:
                await self._text.text(job, rest, text)
            except Dead as dead:
                raise Retry(dead.reason, after="1s") from dead
            return None
        if scheme == "call":
            reason = "no line to call from"
            raise Retry(reason, after="1s")
        await self._notify(channel, text)
        return {"channel": scheme}

    async def call(self, job: Job, user: str, text: str) -> object:
        """Call the dispatcher and say it twice.

        Raises:
            Retry: the provider will not place the call.
        """
        try:
            channel = await self._channel(job, user)
        except StoreUnavailable:
            return Snooze(after=AWAY_AGAIN)
        scheme, _, phone = channel.partition(":")
        if scheme != "call":
            return Next(CHOOSE)
        try:
            script = Say(text=f"{text} I repeat. {text}")
            await self._ring.dial(job, phone, script, within_ms=longest_ms(self._context.settings))
        except Dead as dead:
            raise Retry(dead.reason, after="1s", stage=CHOOSE) from dead
        except Retry as retry:
            raise Retry(retry.reason, after="5s", stage=CHOOSE) from retry
        return None

    async def _channel(self, job: Job, user: str) -> str:
        """The channel of this attempt.

        Raises:
            Dead: there is none.
        """
        async with self._context.directory.read() as session:
            try:
                found = await USERS.find(session, user)
            except UnknownRecord:
                reason = "the user is gone"
                raise Dead(reason) from None
        if not found.channels:
            reason = "the user has no channel"
            raise Dead(reason)
        return found.channels[(job.attempt - 1) % len(found.channels)]

    async def _notify(self, url: str, text: str) -> None:
        """Sends by apprise.

        Raises:
            Retry: it was not taken. The message never contains the address: in many, the path is
                the secret.
        """
        try:
            address = AppriseAddress(url, "the channel")
        except InvalidValue as error:
            raise Retry(error.message, after="1s") from None
        # Apprise has an async form, which logs addresses.
        if not await asyncio.to_thread(address.send, TITLE, text, NotifyType.WARNING):
            reason = f"{url.partition(':')[0]} did not take it"
            raise Retry(reason, after="5s")
