"""Twilio: calls and messages, by its official client."""

from __future__ import annotations

from collections.abc import Mapping

from headway.runtime.settings_table import read_table
from headway.systems.telephony.twilio.account import Account
from headway.systems.telephony.twilio.settings import TwilioSettings


def make(settings: Mapping[str, object]) -> Account:
    """Make the provider.

    Returns:
        Who places calls and sends messages; nothing is connected yet.

    Raises:
        InvalidValue: the settings are unusable.
    """
    return Account(read_table("telephony.twilio", TwilioSettings, settings))
