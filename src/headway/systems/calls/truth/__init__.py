"""A table of yours as the truth about leads: it outlives the store, and may be an older system's.

The row says who may call, the job is the record of the call. Rows are committed before a lead is
acknowledged, and say that a call begins before the provider is touched.
"""

from __future__ import annotations

from collections.abc import Mapping

from headway.core.errors import InvalidValue
from headway.runtime.settings_table import read_table
from headway.systems.calls.truth.lead_table import LeadTable
from headway.systems.calls.truth.settings import MigrationSettings, read_lead_table
from headway.systems.calls.truth.shadow import Migration
from headway.systems.calls.truth.truth import Truth
from headway.systems.parts import Parts


def read_truth(
    table: Mapping[str, object] | None, migration: Mapping[str, object] | None, parts: Parts
) -> Truth | None:
    """Make what the settings say of a table that is the truth.

    Returns:
        The truth; None where the jobs alone are.

    Raises:
        InvalidValue: an option is unknown or unusable.
    """
    if not table:
        if migration:
            message = "there is a table [calls.migration], but no [calls.table]"
            raise InvalidValue(message, hint="set the table that the older system works from")
        return None
    leads = LeadTable(read_lead_table(table), parts.directory)
    parts.also(leads)
    chosen = read_table("calls.migration", MigrationSettings, migration or {})
    return Truth(leads, Migration(chosen, leads, parts.directory, parts.timing), parts.timing)


__all__ = ["Truth", "read_truth"]
