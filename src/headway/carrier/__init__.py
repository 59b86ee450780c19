"""A telephone world that reaches nobody: for tests, for tutorials, and to try things out."""

from __future__ import annotations

from collections.abc import Mapping

from headway.carrier.provider import Simulated
from headway.carrier.settings import SimulatedSettings
from headway.systems.telephony.settings_table import read_table


def make(settings: Mapping[str, object]) -> Simulated:
    """Makes the simulated provider.

    Args:
        settings: the table [telephony.simulated].

    Raises:
        InvalidValue: it holds what is unknown or unusable.
    """
    return Simulated(read_table("telephony.simulated", SimulatedSettings, settings))
