"""Senders as the settings name them: one for each channel that has a table."""

from __future__ import annotations

from collections.abc import Mapping

from headway.core.errors import InvalidValue
from headway.systems.notifications.names import Channel
from headway.systems.notifications.senders.apprise_url import AppriseUrl
from headway.systems.notifications.senders.push import Apns
from headway.systems.notifications.senders.sender import Sender
from headway.systems.notifications.senders.sendgrid import SendGridMail
from headway.systems.notifications.senders.settings import SendersTable
from headway.systems.notifications.senders.sms import Sms
from headway.systems.notifications.senders.smtp import Smtp
from headway.systems.notifications.senders.webhook import Webhook
from headway.systems.parts import Parts


def make_senders(settings: SendersTable, parts: Parts) -> Mapping[Channel, Sender]:
    """Make the senders that have a table; nothing is connected, and the caller closes them.

    Raises:
        InvalidValue: a file or a provider that the settings name is missing or not valid.
    """
    timing = parts.timing
    made: dict[Channel, Sender] = {}
    if settings.push is not None:
        made[Channel.PUSH] = Apns(settings.push, timing)
    if settings.sms is not None:
        try:
            texts = parts.exchange.text(settings.sms.provider)
        except InvalidValue as error:
            message = f"notifications.senders.sms: {error.message}"
            raise InvalidValue(message, hint=error.hint) from None
        made[Channel.SMS] = Sms(texts, settings.sms.from_, lambda: parts.base_url)
    email = settings.email
    if email is not None and email.smtp is not None:
        made[Channel.EMAIL] = Smtp(email.smtp, email.from_, timing)
    if email is not None and email.sendgrid is not None:
        made[Channel.EMAIL] = SendGridMail(email.sendgrid, email.from_, timing)
    if settings.webhook is not None:
        made[Channel.WEBHOOK] = Webhook(settings.webhook, timing)
    if settings.apprise is not None:
        made[Channel.APPRISE] = AppriseUrl(settings.apprise, timing)
    return made
