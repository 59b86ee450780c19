"""The system as the server and the worker see it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from fastapi import APIRouter

from headway.bridges.cassandra.monitoring import start_calendar
from headway.runtime.app import App
from headway.server.service import Service
from headway.systems.notifications.context import NotifyContext
from headway.systems.notifications.delivery import ROUTES as HOOK_ROUTES
from headway.systems.notifications.kinds import declare
from headway.systems.notifications.message_templates import ROUTES as TEMPLATE_ROUTES
from headway.systems.notifications.metrics import start_seeing
from headway.systems.notifications.names import NAME
from headway.systems.notifications.notification_routes import ROUTES as NOTIFICATION_ROUTES
from headway.systems.notifications.opt_outs import ROUTES as OPT_OUT_ROUTES
from headway.systems.notifications.pages import PAGES
from headway.systems.notifications.recipients import ROUTES as RECIPIENT_ROUTES
from headway.web.page import Page

OWN = (NOTIFICATION_ROUTES, HOOK_ROUTES, OPT_OUT_ROUTES, RECIPIENT_ROUTES, TEMPLATE_ROUTES)

_log = logging.getLogger("headway.notifications")


class Notifications:
    """The system `notifications`.

    Attributes:
        context: what its routes and handlers work with.
        pages: its part of the dashboard.
    """

    pages: Sequence[Page] = PAGES

    def __init__(self, context: NotifyContext) -> None:
        self.context = context

    @property
    def name(self) -> str:
        """As `--system` names it."""
        return NAME

    @property
    def routers(self) -> Sequence[APIRouter]:
        """Its routes."""
        return OWN

    def declare(self, app: App) -> None:
        """Add its kind to the app whose worker runs it."""
        declare(app, self.context)

    async def start(self, service: Service) -> None:
        """Make the context available to its routes; add its metrics and rules to the server."""
        if not self.context.senders:
            _log.warning("nothing is sent: add a table such as [notifications.senders.email]")
        start_seeing(service, self.context.tally, self.context.thresholds)
        service.system_services[NAME] = self.context
        if self.context.parts.cassandra is not None:
            start_calendar(service, self.context.parts.cassandra)
