"""The system as the server and the worker see it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from fastapi import APIRouter

from headway.runtime.app import App
from headway.server.service import Service
from headway.systems.notifications.delivery import ROUTES as HOOK_ROUTES
from headway.systems.notifications.desk import Desk
from headway.systems.notifications.kinds import declare
from headway.systems.notifications.metrics import start_seeing
from headway.systems.notifications.names import NAME
from headway.systems.notifications.notification_routes import ROUTES as NOTIFICATION_ROUTES
from headway.systems.notifications.opt_outs import ROUTES as OPT_OUT_ROUTES
from headway.systems.notifications.pages import PAGES
from headway.systems.notifications.recipients import ROUTES as RECIPIENT_ROUTES
from headway.systems.notifications.templates import ROUTES as TEMPLATE_ROUTES
from headway.web.page import Page

OWN = (NOTIFICATION_ROUTES, HOOK_ROUTES, OPT_OUT_ROUTES, RECIPIENT_ROUTES, TEMPLATE_ROUTES)

_log = logging.getLogger("headway.notifications")


class Notifications:
    """The system `notifications`.

    Attributes:
        desk: what its routes and handlers work with.
        pages: its part of the dashboard.
    """

    pages: Sequence[Page] = PAGES

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

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
        declare(app, self.desk)

    async def start(self, service: Service) -> None:
        """Lay out the desk that its routes work with; add its metrics and rules to the server."""
        if not self.desk.senders:
            _log.warning("nothing is sent: add a table such as [notifications.senders.email]")
        start_seeing(service, self.desk.tally, self.desk.thresholds)
        service.desks[NAME] = self.desk
