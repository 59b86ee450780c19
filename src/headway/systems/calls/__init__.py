"""The system `calls`: outbound calls to leads, within lines, calling hours and customers' rates."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial

from fastapi import APIRouter

from headway.runtime.app import App
from headway.runtime.settings_table import read_table
from headway.server.service import Service
from headway.systems.calls.alert_rules import Thresholds
from headway.systems.calls.call_events import ROUTES as HOOK_ROUTES
from headway.systems.calls.catalogue import Catalogue
from headway.systems.calls.catalogue_routes import NUMBER_ROUTES
from headway.systems.calls.catalogue_routes import ROUTES as TEMPLATE_ROUTES
from headway.systems.calls.checks import Checking
from headway.systems.calls.context import NAME, CallsContext
from headway.systems.calls.intake import LeadRecipe
from headway.systems.calls.kinds import declare_kinds
from headway.systems.calls.lead_routes import ROUTES as LEAD_ROUTES
from headway.systems.calls.metrics import start_observability
from headway.systems.calls.migrations import SCHEMAS as OWN_SCHEMAS
from headway.systems.calls.pages import pages_of
from headway.systems.calls.requeueing import watch
from headway.systems.calls.source_table import read_source_table
from headway.systems.calls.template import CallsSettings, check_template
from headway.systems.directory.alert_storage import SCHEMA as ALERTS
from headway.systems.directory.tally import Tally
from headway.systems.parts import Parts
from headway.systems.webhooks import Reporter
from headway.web.page import DashboardPage

_log = logging.getLogger("headway.calls")

OWN = (LEAD_ROUTES, NUMBER_ROUTES, TEMPLATE_ROUTES, HOOK_ROUTES)


class CallsSystem:
    """The system `calls`."""

    name: str = NAME

    def __init__(self, context: CallsContext) -> None:
        self.context = context
        self.pages: Sequence[DashboardPage] = pages_of(context)
        own_table = () if context.table is None else context.table.routers
        self.routers: Sequence[APIRouter] = (*OWN, *own_table)

    def declare(self, app: App) -> None:
        """Declare the system's kinds and sources to an app."""
        lead = declare_kinds(app, self.context)
        if self.context.table is not None:
            self.context.table.declare(app, lead, LeadRecipe(context=self.context))

    async def start(self, service: Service) -> None:
        """Declare the gates to the store, and start metrics, alerts and the requeueing of leads."""
        service.system_services[NAME] = self.context
        if not self.context.telephony.voices:
            _log.warning("no call provider is configured: add a table such as [telephony.twilio]")
        start_observability(service, self.context.tally, self.context.thresholds)
        await self.context.declare_gates(await self.context.catalogue.read())
        # Waiting leads may need requeueing after changes that were made while no server ran.
        self.context.changed.set()
        service.keep_running(partial(watch, self.context), "requeueing of leads")


SCHEMAS = (*OWN_SCHEMAS, ALERTS)
"""The system's tables in the directory."""


def make(settings: Mapping[str, object], parts: Parts) -> CallsSystem:
    """Build the system from the settings [calls], without opening or declaring anything."""
    read = read_table(NAME, CallsSettings, settings)
    check_template(read.template, parts.telephony, f"{NAME}.template.")
    parts.directory.needs(*SCHEMAS)
    reporter = Reporter(
        read.reporting_keys,
        where="calls.reporting_keys",
        what="reporting_webhook_url",
        private=read.reporting_private,
        timing=parts.timing,
    )
    tally = Tally(parts.directory, parts.timing, "calls_tally")
    checking = Checking(parts.timing)
    for one in (checking, reporter, tally):
        parts.add_resource(one)
    context = CallsContext(
        settings=read,
        parts=parts,
        catalogue=Catalogue(parts.directory, read.default, parts.timing),
        checking=checking,
        tally=tally,
        reporter=reporter,
        thresholds=read_table("calls.alerts", Thresholds, read.alerts),
        table=read_source_table(read.table, read.migration, parts),
    )
    return CallsSystem(context)
