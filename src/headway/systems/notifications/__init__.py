"""The system `notifications`: messages by push, SMS, e-mail and webhook, now or at their time."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from fastapi import APIRouter

from headway.bridges.cassandra.monitoring import calendar_page, start_calendar
from headway.core.errors import InvalidValue, located
from headway.runtime.app import App
from headway.runtime.settings_table import read_table
from headway.server.service import Service
from headway.systems.directory.alert_storage import SCHEMA as ALERTS
from headway.systems.directory.tally import Tally
from headway.systems.notifications.context import NotifyContext
from headway.systems.notifications.delivery import ROUTES as HOOK_ROUTES
from headway.systems.notifications.mail import Smtp
from headway.systems.notifications.message_templates import ROUTES as TEMPLATE_ROUTES
from headway.systems.notifications.metrics import Thresholds, start_monitoring
from headway.systems.notifications.notification import NAME, Channel
from headway.systems.notifications.notification_routes import ROUTES as NOTIFICATION_ROUTES
from headway.systems.notifications.opt_outs import ROUTES as OPT_OUT_ROUTES
from headway.systems.notifications.pages import PAGES
from headway.systems.notifications.push import Apns
from headway.systems.notifications.recipients import ROUTES as RECIPIENT_ROUTES
from headway.systems.notifications.records import SCHEMA, RecordReader
from headway.systems.notifications.sender import MessageSender
from headway.systems.notifications.senders import AppriseUrl, Sms, Webhook
from headway.systems.notifications.sendgrid_mail import SendGridMail
from headway.systems.notifications.sending import declare
from headway.systems.notifications.settings import NotificationSettings, SendersTable
from headway.systems.parts import Parts
from headway.web.page import DashboardPage

SCHEMAS = (SCHEMA, ALERTS)
"""Directory tables that this system needs."""
OWN = (NOTIFICATION_ROUTES, HOOK_ROUTES, OPT_OUT_ROUTES, RECIPIENT_ROUTES, TEMPLATE_ROUTES)

_log = logging.getLogger("headway.notifications")


class Notifications:
    """The system `notifications`."""

    name: str = NAME
    routers: Sequence[APIRouter] = OWN

    def __init__(self, context: NotifyContext) -> None:
        self.context = context
        link = context.parts.cassandra
        self.pages: Sequence[DashboardPage] = (
            PAGES if link is None else (*PAGES, calendar_page(link))
        )

    def declare(self, app: App) -> None:
        """Declare the system's kinds on the app."""
        declare(app, self.context)

    async def start(self, service: Service) -> None:
        """Register the context, metrics and alert rules; log a warning if there is no sender."""
        if not self.context.senders:
            _log.warning("no sender configured: add a table such as [notifications.senders.email]")
        start_monitoring(service, self.context.tally, self.context.thresholds)
        service.system_services[NAME] = self.context
        if self.context.parts.cassandra is not None:
            start_calendar(service, self.context.parts.cassandra)


def make(
    settings: Mapping[str, object],
    parts: Parts,
    senders: Mapping[Channel, MessageSender] | None = None,
) -> Notifications:
    """Build the system from the [notifications] settings; opens and declares nothing.

    Args:
        senders: used instead of those of the settings, if given.
    """
    read = read_table(NAME, NotificationSettings, settings)
    _check_history(read, parts)
    parts.directory.needs(*SCHEMAS)
    tally = Tally(parts.directory, parts.timing, "notify_tally")
    parts.add_resource(tally)
    context = NotifyContext(
        settings=read,
        parts=parts,
        senders=make_senders(read.senders, parts) if senders is None else senders,
        tally=tally,
        reader=RecordReader(parts.directory),
        thresholds=read_table("notifications.alerts", Thresholds, read.alerts),
    )
    parts.add_resource(context)
    return Notifications(context)


def _check_history(settings: NotificationSettings, parts: Parts) -> None:
    """Check that the history keeps notifications for as long as the store, or longer.

    Raises:
        InvalidValue: it does not.
    """
    link = parts.cassandra
    if link is None or not link.settings.history:
        return
    if link.settings.history_kept < settings.keep:
        message = "cassandra.history_kept is shorter than notifications.keep"
        raise InvalidValue(message, hint="timelines continue with the history after `keep`")


def make_senders(settings: SendersTable, parts: Parts) -> Mapping[Channel, MessageSender]:
    """Create the senders that have a table; nothing is connected, and the caller closes them.

    Raises:
        InvalidValue: a file or a provider that the settings name is missing or invalid.
    """
    timing = parts.timing
    made: dict[Channel, MessageSender] = {}
    if settings.push is not None:
        made[Channel.PUSH] = Apns(settings.push, timing)
    if settings.sms is not None:
        with located("notifications.senders.sms: "):
            texts = parts.telephony.text(settings.sms.provider)
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
