"""The system `field_service`: offers a job to one technician after another until one accepts."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from fastapi import APIRouter

from headway.runtime.app import App
from headway.server.service import Service
from headway.systems.directory.alert_storage import SCHEMA as ALERTS
from headway.systems.directory.tally import Tally
from headway.systems.field_service.answering import ROUTES as HOOK_ROUTES
from headway.systems.field_service.context import FieldContext
from headway.systems.field_service.dispatching import ROUTES as DISPATCHER_ROUTES
from headway.systems.field_service.doctor import ROUTES as DOCTOR_ROUTES
from headway.systems.field_service.doctor import reach_concerns
from headway.systems.field_service.kinds import declare
from headway.systems.field_service.metrics import field_metrics
from headway.systems.field_service.pages import pages_of
from headway.systems.field_service.records import SCHEMAS as OWN_SCHEMAS
from headway.systems.field_service.request import NAME
from headway.systems.field_service.request_routes import ROUTES as REQUEST_ROUTES
from headway.systems.field_service.settings import read_settings
from headway.systems.field_service.technicians import ROUTES as TECHNICIAN_ROUTES
from headway.systems.field_service.users import ROUTES as USER_ROUTES
from headway.systems.parts import Parts
from headway.web.page import DashboardPage

_log = logging.getLogger("headway.field_service")


class FieldService:
    """The system `field_service`."""

    name: str = NAME
    routers: Sequence[APIRouter] = (
        REQUEST_ROUTES,
        DISPATCHER_ROUTES,
        HOOK_ROUTES,
        DOCTOR_ROUTES,
        TECHNICIAN_ROUTES,
        USER_ROUTES,
    )

    def __init__(self, context: FieldContext) -> None:
        self.context = context
        self.pages: Sequence[DashboardPage] = pages_of(context)

    def declare(self, app: App) -> None:
        """Declare the system's kinds on the app."""
        declare(app, self.context)

    async def start(self, service: Service) -> None:
        """Register the context and the metrics; log a warning if technicians cannot be reached."""
        for one in reach_concerns(self.context.settings):
            _log.warning("%s: %s", one.found, one.hint)
        service.scrapes.add(field_metrics(service.store, self.context.tally))
        service.system_services[NAME] = self.context


SCHEMAS = (*OWN_SCHEMAS, ALERTS)
"""Directory tables that this system needs."""


def make(settings: Mapping[str, object], parts: Parts) -> FieldService:
    """Build the system from the [field_service] settings; opens and declares nothing."""
    read = read_settings(settings, parts.telephony)
    parts.directory.needs(*SCHEMAS)
    tally = Tally(parts.directory, parts.timing, "field_service_tally")
    parts.add_resource(tally)
    return FieldService(FieldContext(settings=read, parts=parts, tally=tally))
