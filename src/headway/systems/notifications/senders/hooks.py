"""Delivery webhooks: what providers report of messages that they had accepted.

A webhook is verified before it is read: Twilio's by the tokens of `[telephony.twilio]`, SendGrid's
by the public keys of `[hooks.sendgrid]`.
"""

from __future__ import annotations

from collections.abc import Sequence

from headway.server.hooks.request import HookRequest
from headway.server.hooks.sendgrid import MailEvent, read_events
from headway.systems.notifications.senders.sender import DeliveryEvent
from headway.systems.notifications.senders.sms import NO_SUCH_PHONE
from headway.systems.notifications.senders.smtp import NO_SUCH_MAILBOX
from headway.systems.telephony.texts import Texts, TextStatus

STOP_WORDS = frozenset(
    {"STOP", "STOPALL", "UNSUBSCRIBE", "CANCEL", "END", "QUIT", "REVOKE", "OPTOUT"}
)
"""Source: Twilio, "Twilio support for opt-out keywords"."""

UNDELIVERED = frozenset({"bounce", "dropped"})
"""Events of SendGrid after which a mail will not arrive."""


def read_text_delivery(texts: Texts, request: HookRequest) -> Sequence[DeliveryEvent]:
    """Read a verified status webhook of a provider of texts.

    Returns:
        The event that ends the message; nothing while it is on its way.

    Raises:
        InvalidValue: it is not understood.
    """
    said = texts.read_text_status(request)
    if said is None or not said.status.ended:
        return ()
    delivered = said.status is TextStatus.DELIVERED
    reason = "" if delivered else f"{said.status}, {said.reason}".removesuffix(", ")
    gone, ref = said.code in NO_SUCH_PHONE, said.ref or ""
    return (DeliveryEvent(said.message_id, said.event, delivered, reason, gone, ref),)


def read_stop(texts: Texts, request: HookRequest) -> str | None:
    """Return the number that a verified webhook of a text is from; None if it is not a STOP.

    Raises:
        InvalidValue: it is not understood.
    """
    said = texts.read_inbound(request)
    if said is None or said.text.strip().upper() not in STOP_WORDS:
        return None
    return said.from_


def read_mail_delivery(request: HookRequest) -> Sequence[DeliveryEvent]:
    """Read a verified webhook of SendGrid.

    Returns:
        The events that end messages, in order.

    Raises:
        InvalidValue: it is no list of events.
    """
    return [
        DeliveryEvent(
            one.message_id,
            one.event,
            delivered=one.status == "delivered",
            reason="" if one.status == "delivered" else one.reason,
            gone=_gone(one),
        )
        for one in read_events(request)
        if one.message_id and one.status in {"delivered", *UNDELIVERED}
    ]


def _gone(event: MailEvent) -> bool:
    # A block is a refusal for now, of whatever code.
    status = str(event.body.get("status", ""))
    blocked = event.body.get("type") == "blocked"
    return event.status == "bounce" and not blocked and status in NO_SUCH_MAILBOX
