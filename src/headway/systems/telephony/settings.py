"""The table [telephony] of the settings: who places calls and sends messages."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import cast

from headway.core.errors import InvalidValue
from headway.core.naming import did_you_mean
from headway.systems.telephony.exchange import Exchange
from headway.systems.telephony.texts import Texts
from headway.systems.telephony.voice import Voice

PROVIDERS: Mapping[str, str] = MappingProxyType(
    {
        "twilio": "headway.systems.telephony.twilio",
        "vonage": "headway.systems.telephony.vonage",
        "simulated": "headway.carrier",
    }
)
"""Each provider and its package, which has `make(settings)`."""


def read_exchange(written: Mapping[str, object]) -> Exchange:
    """Make the providers that the settings name.

    Args:
        written: the table [telephony]: a table for each provider.

    Returns:
        The providers in their order; nothing is connected before it is used.

    Raises:
        InvalidValue: a provider is unknown, or its settings are unusable.
    """
    voices: dict[str, Voice] = {}
    texts: dict[str, Texts] = {}
    for name, settings in written.items():
        made = _make(name, settings)
        # A class that places calls and sends messages stands in both.
        if hasattr(made, "dial"):
            voices[name] = cast("Voice", made)
        if hasattr(made, "send"):
            texts[name] = cast("Texts", made)
    return Exchange(voices, texts)


def _make(name: str, settings: object) -> object:
    package = PROVIDERS.get(name)
    if package is None:
        message = f"[telephony]: there is no provider {name!r}"
        hint = did_you_mean(name, PROVIDERS, f"there are {', '.join(PROVIDERS)}")
        raise InvalidValue(message, hint=hint)
    if not isinstance(settings, Mapping):
        message = f"telephony.{name} is {settings!r:.40}"
        raise InvalidValue(message, hint=f"write a table: [telephony.{name}]")
    return import_module(package).make(cast("Mapping[str, object]", settings))
