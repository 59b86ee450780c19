"""The system `automations`: recurring sessions against git repositories."""

from __future__ import annotations

from collections.abc import Mapping

from headway.server.alerts.declared import thresholds_of
from headway.systems.automations.dispatcher import Dispatcher
from headway.systems.automations.places import read_places, read_settings
from headway.systems.automations.system import AutomationsSystem, Thresholds


def make(settings: Mapping[str, object]) -> AutomationsSystem:
    """Make the system.

    Args:
        settings: the table [automations] of headway.toml.

    Raises:
        InvalidValue: a setting is unknown or not valid.
    """
    read = read_settings(settings)
    dispatcher = Dispatcher(file=read.file, places=read_places(read.state_dir), lease_ms=read.lease)
    alerts = thresholds_of("automations.alerts", Thresholds, read.alerts)
    return AutomationsSystem(dispatcher, look_each_ms=read.look_each, alerts=alerts)
