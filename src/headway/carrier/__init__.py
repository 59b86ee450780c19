"""A simulated phone network for tests, tutorials and trials; no real number is called."""

from __future__ import annotations

from collections.abc import Mapping

from headway.carrier.provider import Simulated
from headway.carrier.script import SimulatedSettings
from headway.runtime.settings_table import read_table


def make(settings: Mapping[str, object]) -> Simulated:
    """Create the simulated provider from its settings.

    Raises:
        InvalidValue: a setting is unknown or not valid.
    """
    return Simulated(read_table("telephony.simulated", SimulatedSettings, settings))
