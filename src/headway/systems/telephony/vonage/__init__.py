"""Vonage: calls, by its official client."""

from __future__ import annotations

from collections.abc import Mapping

from headway.runtime.settings_table import read_table
from headway.systems.telephony.vonage.application import Application
from headway.systems.telephony.vonage.settings import VonageSettings


def make(settings: Mapping[str, object]) -> Application:
    """Make the provider.

    Returns:
        Who places calls; nothing is connected yet.

    Raises:
        InvalidValue: the settings are unusable, or the private key is not there.
    """
    return Application(read_table("telephony.vonage", VonageSettings, settings))
