"""A simulated telephone network, for tests, tutorials and trials; no real number is called."""

from __future__ import annotations

from collections.abc import Mapping

from headway.carrier.provider import Simulated
from headway.carrier.settings import SimulatedSettings
from headway.runtime.settings_table import read_table


def make(settings: Mapping[str, object]) -> Simulated:
    """Make the simulated provider.

    Raises:
        InvalidValue: it holds what is unknown or unusable.
    """
    return Simulated(read_table("telephony.simulated", SimulatedSettings, settings))
