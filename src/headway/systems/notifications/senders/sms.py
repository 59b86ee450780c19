"""SMS: text messages by a provider of `[telephony]`."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

from headway.core.errors import ProviderError, ProviderRefused
from headway.systems.notifications.senders.sender import (
    Accepted,
    Limited,
    Message,
    Outcome,
    Refused,
    outcome_of,
)
from headway.systems.telephony.phone import is_phone
from headway.systems.telephony.texts import TextOrder, Texts

STATUS_PATH = "/notifications/hooks/{provider}/status"

NO_SUCH_PHONE = frozenset({"21211", "21614", "30005", "30006"})
"""Twilio's codes for a number that is invalid, not a mobile one, unknown, or a landline.

Source: Twilio, "Error and Warning Dictionary".
"""
LIMITED = frozenset({"14107", "20429", "21611", "30001"})
"""Of too many requests or messages at once, and of full queues."""


class Sms:
    """Sends texts from one number."""

    def __init__(self, texts: Texts, from_: str, base_url: Callable[[], str]) -> None:
        """Connect nothing yet; the provider is not closed here.

        Without a URL by which it reaches this server no delivery is reported.
        """
        self._texts = texts
        self._from = from_
        self._base_url = base_url

    async def send(self, message: Message) -> Outcome:
        """See `Sender.send`."""
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
        """See `Sender.close`."""
