"""The system as the server and the worker see it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from fastapi import APIRouter

from headway.runtime.app import App
from headway.server.service import Service
from headway.systems.calls.book_routes import ROUTES as BOOK_ROUTES
from headway.systems.calls.desk import NAME, Desk
from headway.systems.calls.hearing import ROUTES as HOOK_ROUTES
from headway.systems.calls.intake import LeadRecipe
from headway.systems.calls.kinds import declare_kinds
from headway.systems.calls.lead_routes import ROUTES as LEAD_ROUTES
from headway.systems.calls.pages import pages_of
from headway.systems.calls.seen.metrics import start_seeing
from headway.systems.calls.waiting import watch
from headway.web.page import Page

_log = logging.getLogger("headway.calls")

OWN = (LEAD_ROUTES, BOOK_ROUTES, HOOK_ROUTES)


class CallsSystem:
    """The system `calls`.

    Attributes:
        desk: what its routes and handlers work with.
    """

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    @property
    def name(self) -> str:
        """As `--system` names it."""
        return NAME

    @property
    def routers(self) -> Sequence[APIRouter]:
        """Its routes."""
        return (*OWN, *(() if self.desk.table is None else self.desk.table.routers))

    @property
    def pages(self) -> Sequence[Page]:
        """Its pages of the dashboard."""
        return pages_of(self.desk)

    def declare(self, app: App) -> None:
        """Adds its kinds to an app."""
        lead = declare_kinds(app, self.desk)
        if self.desk.table is not None:
            self.desk.table.declare(app, lead, LeadRecipe(desk=self.desk))

    async def start(self, service: Service) -> None:
        """Tells the store of the gates, and looks after those who wait.

        Raises:
            StoreError: the directory or the store cannot be reached.
        """
        service.desks[NAME] = self.desk
        if not self.desk.parts.exchange.voices:
            _log.warning("nobody places calls: add a table such as [telephony.twilio]")
        start_seeing(service, self.desk.tally, self.desk.thresholds)
        await self.desk.tell_gates(await self.desk.book.read())
        # What was changed while no server ran concerns those who wait as well.
        self.desk.changed.set()
        service.spawn(watch(self.desk), "leads that wait")
