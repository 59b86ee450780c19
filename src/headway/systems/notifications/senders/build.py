"""Senders as the settings name them: one for each channel that has a table."""

from __future__ import annotations

from collections.abc import Mapping

from headway.core.errors import InvalidValue
from headway.systems.notifications.senders.apprise_url import AppriseUrl
from headway.systems.notifications.senders.push import Apns
from headway.systems.notifications.senders.sender import Sender
from headway.systems.notifications.senders.sendgrid import SendGridMail
from headway.systems.notifications.senders.settings import read_senders
from headway.systems.notifications.senders.sms import Sms
from headway.systems.notifications.senders.smtp import Smtp
from headway.systems.notifications.senders.webhook import Webhook
from headway.systems.parts import Parts


def make_senders(settings: Mapping[str, object], parts: Parts) -> Mapping[str, Sender]:
    """Make the senders that the settings name.

    Args:
        settings: the table [notifications.senders].
        parts: whose clock, whose providers of texts and whose URL they use.

    Returns:
        The sender of each channel: of "push", "sms", "email", "webhook" and "apprise", those that
        have a table. Nothing is connected; the caller closes them.

    Raises:
        InvalidValue: a setting is unknown or not valid, or its file or provider is missing.
    """
    read, timing = read_senders(settings), parts.timing
    made: dict[str, Sender] = {}
    if read.push is not None:
        made["push"] = Apns(read.push, timing)
    if read.sms is not None:
        try:
            texts = parts.exchange.text(read.sms.provider)
        except InvalidValue as error:
            message = f"notifications.senders.sms: {error.message}"
            raise InvalidValue(message, hint=error.hint) from None
        made["sms"] = Sms(texts, read.sms.from_, lambda: parts.base_url)
    email = read.email
    if email is not None and email.smtp is not None:
        made["email"] = Smtp(email.smtp, email.from_, timing)
    if email is not None and email.sendgrid is not None:
        made["email"] = SendGridMail(email.sendgrid, email.from_, timing)
    if read.webhook is not None:
        made["webhook"] = Webhook(read.webhook, timing)
    if read.apprise is not None:
        made["apprise"] = AppriseUrl(read.apprise, timing)
    return made
