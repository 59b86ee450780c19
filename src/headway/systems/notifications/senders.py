"""Senders of text messages and webhooks, and to any service that apprise supports.

Source: the Standard Webhooks specification, "Webhook payload", "Operational considerations".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from threading import Lock
from typing import Annotated
from urllib.parse import quote

import msgspec
from apprise import NotifyType
from pydantic import Field

from headway.core.errors import InvalidValue, ProviderError, ProviderRefused
from headway.runtime.settings_table import Table
from headway.runtime.timing import Timing
from headway.server.alerts.apprise_sink import AppriseAddress
from headway.server.hooks.providers import Keys
from headway.systems.notifications.sender import (
    Accepted,
    Limited,
    Message,
    Refused,
    SendResult,
    Timeout,
    Unavailable,
    Unsure,
    outcome_of,
)
from headway.systems.pre_send_check import Withdrawn, check_before_send
from headway.systems.telephony.phone import Phone, is_phone
from headway.systems.telephony.texts import TextOrder, TextProvider
from headway.systems.webhooks import GONE, Posted, PrivateAddress, Reporter


class SmsTable(Table):
    """`[notifications.senders.sms]`: a provider of `[telephony]`.

    Attributes:
        from_: sender's number; written `from`.
        provider: name of the provider in [telephony]. Defaults to the first one that sends texts.
    """

    from_: Annotated[Phone, Field(alias="from")]
    provider: str | None = None


class WebhookTable(Table):
    """`[notifications.senders.webhook]`.

    Attributes:
        keys: `whsec_…`; every key signs, so that receivers can switch keys.
        private: whether to allow addresses that are not on the public internet.
    """

    keys: Annotated[Keys, Field(min_length=1)]
    private: bool = False


class AppriseTable(Table):
    """`[notifications.senders.apprise]`.

    Attributes:
        threads: maximum number of services to send to at once.
        timeout: how long a service may take to reply, ms.
    """

    threads: Annotated[int, Field(ge=1, le=64)] = 8
    timeout: Timeout = 30_000


STATUS_PATH = "/notifications/hooks/{provider}/status"

NO_SUCH_PHONE = frozenset({"21211", "21614", "30005", "30006"})
"""Twilio's codes for a number that is invalid, not a mobile one, unknown, or a landline.

Source: Twilio, "Error and Warning Dictionary".
"""
LIMITED = frozenset({"14107", "20429", "21611", "30001"})
"""Twilio's codes for too many requests or messages at once, and for full queues."""


class Sms:
    """Sends texts from one number."""

    def __init__(self, texts: TextProvider, from_: str, base_url: Callable[[], str]) -> None:
        """Keep the provider, which is not closed here.

        Args:
            base_url: returns this server's public URL; without one, no deliveries are reported.
        """
        self._texts = texts
        self._from = from_
        self._base_url = base_url

    async def send(self, message: Message) -> SendResult:
        if not is_phone(message.to):
            return Refused("the number is not in E.164")
        base = self._base_url()
        path = STATUS_PATH.format(provider=self._texts.name)
        order = TextOrder(
            ref=message.id,
            to=message.to,
            from_=self._from,
            text=message.text,
            status_url=f"{base}{path}?ref={quote(message.id, safe='')}" if base else None,
        )
        try:
            return Accepted(await self._texts.send(order))
        except ProviderRefused as refused:
            if refused.provider_code in LIMITED:
                return Limited(refused.message, refused.retry_after_ms)
            if refused.provider_code in NO_SUCH_PHONE:
                return Refused(refused.message, gone=True)
            return outcome_of(refused)
        except ProviderError as error:
            return outcome_of(error)

    async def close(self) -> None:
        """See `MessageSender.close`."""


TYPE = "notification"
POSTED = ("id", "category", "priority", "title", "text", "data")
"""Fields of a message that a receiver gets."""
LATER = frozenset({408, 425, 429})
"""4xx statuses by which a receiver asks for another try.

A 429 does not close the channel: other recipients have other receivers.
"""


class Webhook:
    """Posts notifications; the webhook's id is the notification's, on every try."""

    def __init__(self, settings: WebhookTable, timing: Timing) -> None:
        """Read the keys; connect nothing yet.

        Raises:
            InvalidValue: a key cannot be used.
        """
        self._reporter = Reporter(
            settings.keys,
            where="notifications.senders.webhook.keys",
            what="the address",
            private=settings.private,
            timing=timing,
        )

    async def send(self, message: Message) -> SendResult:
        data = {name: getattr(message, name) for name in POSTED}
        body = msgspec.json.encode({"type": TYPE, "data": data})
        try:
            return _read(await self._reporter.post(message.to, message.id, body))
        except InvalidValue as error:
            return Refused(error.message)
        except PrivateAddress as error:
            return Refused(f"nothing is sent to a private address: {error}")
        except ProviderError as error:
            return outcome_of(error)

    async def close(self) -> None:
        await self._reporter.close()


def _read(reply: Posted) -> SendResult:
    reason = f"the webhook answered {reply.status}"
    if 200 <= reply.status < 300:
        return Accepted(None)
    # The receiver has replied that it did not accept it.
    if reply.status >= 500 or reply.status in LATER:
        return Unavailable(reason, reply.retry_after_ms)
    return Refused(reason, gone=reply.status == GONE)


class AppriseUrl:
    """Sends to the service of each message's URL, in its own threads."""

    def __init__(self, settings: AppriseTable, timing: Timing) -> None:
        """Start nothing yet."""
        self._timeout_s = settings.timeout / 1000
        self._timing = timing
        self._threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="apprise")

    async def send(self, message: Message) -> SendResult:
        """See `MessageSender.send`.

        Apprise only reports success or failure. A failure can be a refusal or a lost answer, so
        its outcome is `Unsure`.

        Raises:
            Withdrawn: see `MessageSender.send`.
        """
        try:
            address = AppriseAddress(message.to, "the address")
        except InvalidValue as error:
            return Refused(error.message)
        # The scheme names the service; the rest of the URL can be a secret.
        service = message.to.partition(":")[0][:20]
        loop, context = asyncio.get_running_loop(), copy_context()
        # Taken by the thread before it sends, or by the timeout so that the thread does not send.
        decision = Lock()

        def run() -> bool:
            check = context.run(asyncio.run_coroutine_threadsafe, check_before_send(), loop)
            check.result(self._timeout_s)
            sends = decision.acquire(blocking=False)
            return sends and address.send(message.title, message.text, NotifyType.INFO)

        try:
            async with self._timing.limit(self._timeout_s):
                confirmed = await asyncio.wrap_future(self._threads.submit(run))
        except TimeoutError:
            if decision.acquire(blocking=False):
                return Unavailable(f"{service} was not reached in time")
            return Unsure(f"{service} did not answer in time")
        except Withdrawn:
            raise
        except Exception as error:  # noqa: BLE001  (a service's own code, which can raise anything)
            return Unsure(f"{service} failed: {type(error).__name__}")
        return Accepted(None) if confirmed else Unsure(f"{service} did not confirm it")

    async def close(self) -> None:
        """See `MessageSender.close`; running sends end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)
