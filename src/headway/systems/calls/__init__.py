"""The system `calls`: outbound calls to leads, within what lines, hours and customers allow."""

from __future__ import annotations

from collections.abc import Mapping

from headway.systems.calls.catalogue import Catalogue
from headway.systems.calls.checks import Checking
from headway.systems.calls.context import CallsContext
from headway.systems.calls.migrations import SCHEMAS as OWN_SCHEMAS
from headway.systems.calls.observability.rules import read_thresholds
from headway.systems.calls.settings import read_settings
from headway.systems.calls.system import CallsSystem
from headway.systems.calls.truth import read_truth
from headway.systems.directory.alert_place import SCHEMA as ALERTS
from headway.systems.directory.tally import Tally
from headway.systems.parts import Parts
from headway.systems.webhooks.reporter import Reporter

SCHEMAS = (*OWN_SCHEMAS, ALERTS)
"""The tables that it needs in the directory."""


def make(settings: Mapping[str, object], parts: Parts) -> CallsSystem:
    """Make the system, of the table [calls]; nothing is opened or declared.

    Raises:
        InvalidValue: a setting is unknown or unusable.
    """
    read = read_settings(settings)
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
        parts.also(one)
    context = CallsContext(
        settings=read,
        parts=parts,
        catalogue=Catalogue(parts.directory, read.default, parts.timing),
        checking=checking,
        tally=tally,
        reporter=reporter,
        thresholds=read_thresholds(read.alerts),
        table=read_truth(read.table, read.migration, parts),
    )
    return CallsSystem(context)
