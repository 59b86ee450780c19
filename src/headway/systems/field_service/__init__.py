"""The system `field_service`: offers a job to one technician after another until one accepts."""

from __future__ import annotations

from collections.abc import Mapping

from headway.systems.directory.alert_place import SCHEMA as ALERTS
from headway.systems.directory.tally import Tally
from headway.systems.field_service.context import FieldContext
from headway.systems.field_service.records import SCHEMAS as OWN_SCHEMAS
from headway.systems.field_service.settings import read_settings
from headway.systems.field_service.system import FieldService
from headway.systems.parts import Parts

SCHEMAS = (*OWN_SCHEMAS, ALERTS)
"""The tables that it needs in the directory."""


def make(settings: Mapping[str, object], parts: Parts) -> FieldService:
    """Make the system, of the table [field_service]; nothing is opened or declared.

    Raises:
        InvalidValue: a setting is unusable.
    """
    read = read_settings(settings, parts.exchange)
    parts.directory.needs(*SCHEMAS)
    tally = Tally(parts.directory, parts.timing, "field_service_tally")
    parts.also(tally)
    return FieldService(FieldContext(settings=read, parts=parts, tally=tally))
