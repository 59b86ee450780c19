"""Webhook: a notification as a signed POST to an address on the open internet.

Source: the Standard Webhooks specification, "Webhook payload", "Operational considerations".
"""

from __future__ import annotations

import msgspec

from headway.core.errors import InvalidValue, ProviderError
from headway.runtime.timing import Timing
from headway.systems.notifications.senders.sender import (
    Accepted,
    Limited,
    Message,
    Outcome,
    Refused,
    Unavailable,
    outcome_of,
)
from headway.systems.notifications.senders.settings import WebhookTable
from headway.systems.webhooks.pinned import PrivateAddress
from headway.systems.webhooks.reporter import GONE, Posted, Reporter

TYPE = "notification"
POSTED = ("id", "category", "priority", "title", "text", "data")
"""What a receiver gets of a message."""
LATER = frozenset({408, 425})
"""Statuses of the caller's side with which a receiver asks for another try."""


class Webhook:
    """Posts notifications; the id of the webhook is the notification's, on every try."""

    def __init__(self, settings: WebhookTable, timing: Timing) -> None:
        """Connect nothing yet.

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

    async def send(self, message: Message) -> Outcome:
        """See `Sender.send`."""
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
        """See `Sender.close`."""
        await self._reporter.close()


def _read(reply: Posted) -> Outcome:
    said = f"the webhook answered {reply.status}"
    if 200 <= reply.status < 300:
        return Accepted(None)
    if reply.status == 429:
        return Limited(said, reply.retry_after_ms)
    # The receiver has answered that it has not taken it.
    if reply.status >= 500 or reply.status in LATER:
        return Unavailable(said)
    return Refused(said, gone=reply.status == GONE)
