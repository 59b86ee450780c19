"""The system as the server sees it: its routes, its kinds, and its desk."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter

from headway.runtime.app import App
from headway.server.service import Service
from headway.systems.field_service.desk import Desk
from headway.systems.field_service.kinds.declare import declare
from headway.systems.field_service.live.feed import LiveFeed
from headway.systems.field_service.names import NAME
from headway.systems.field_service.routes import (
    answering,
    dispatcher,
    doctor,
    hooks,
    intake,
    live,
    requests,
    settings,
)
from headway.systems.field_service.seen.source import FieldMetrics
from headway.systems.field_service.technicians import routes as technicians
from headway.systems.field_service.users import routes as users


class FieldService:
    """The system `field_service`.

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
        return (
            intake.ROUTES,
            requests.ROUTES,
            answering.ROUTES,
            dispatcher.ROUTES,
            settings.ROUTES,
            hooks.ROUTES,
            live.ROUTES,
            doctor.ROUTES,
            technicians.ROUTES,
            users.ROUTES,
        )

    def declare(self, app: App) -> None:
        """Adds its kinds to the app whose worker runs them."""
        declare(app, self.desk)

    async def start(self, service: Service) -> None:
        """Lays out the desk that its routes work with, and adds its metrics to the server's."""
        service.scrapes.add(FieldMetrics(service.store, self.desk.tally))
        self.desk.feed = LiveFeed(service, self.desk.directory)
        service.desks[NAME] = self.desk
