"""An application's own table as the source of leads: the source table.

It outlives the store, and may belong to an older system. The row decides which system may call the
lead; the job records the call. A row is committed before its lead is acknowledged, and marked as
running before the provider gets the first request of a call.
"""

from __future__ import annotations

from collections.abc import Mapping

from headway.core.errors import InvalidValue
from headway.runtime.settings_table import read_table
from headway.systems.calls.source_table.lead_table import LeadTable
from headway.systems.calls.source_table.migration import Migration
from headway.systems.calls.source_table.settings import MigrationSettings, read_lead_table
from headway.systems.calls.source_table.source_table import SourceTable
from headway.systems.parts import Parts


def read_source_table(
    table: Mapping[str, object] | None, migration: Mapping[str, object] | None, parts: Parts
) -> SourceTable | None:
    """Build the source-table integration from its settings.

    Returns:
        None if no source table is configured.

    Raises:
        InvalidValue: an option is unknown or invalid, or there is a migration without a table.
    """
    if not table:
        if migration:
            message = "[calls.migration] is set, but [calls.table] is not"
            raise InvalidValue(message, hint="set the table that the older system works on")
        return None
    leads = LeadTable(read_lead_table(table), parts.directory)
    parts.add_resource(leads)
    plan = read_table("calls.migration", MigrationSettings, migration or {})
    return SourceTable(leads, Migration(plan, leads, parts.directory, parts.timing), parts.timing)


__all__ = ["SourceTable", "read_source_table"]
