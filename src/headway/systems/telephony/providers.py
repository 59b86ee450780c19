"""The telephony: the providers of [telephony] by name, dialling with failover, and webhooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Annotated, Literal, cast

from fastapi import Path
from starlette.exceptions import HTTPException
from starlette.requests import Request

from headway.core.errors import InvalidValue, ProviderRefused
from headway.core.naming import did_you_mean
from headway.server.hooks.request import HookRequest, received
from headway.server.service import Service
from headway.systems.telephony.texts import TextProvider
from headway.systems.telephony.voice import CallOrder, Dialled, Voice


class Telephony:
    """The providers of one server or worker.

    Attributes:
        voices: providers of calls by name, in the order of the settings.
        texts: providers of text messages by name, in the order of the settings.
    """

    def __init__(self, voices: Mapping[str, Voice], texts: Mapping[str, TextProvider]) -> None:
        self.voices = dict(voices)
        self.texts = dict(texts)

    def voice(self, name: str) -> Voice:
        """Return the call provider with this name.

        Raises:
            InvalidValue: the settings have no provider of this name.
        """
        found = self.voices.get(name)
        if found is None:
            message = f"no call provider is named {name!r}"
            known = ", ".join(self.voices) or "none"
            raise InvalidValue(message, hint=f"add [telephony.{name}]; configured: {known}")
        return found

    def text(self, name: str | None = None) -> TextProvider:
        """Return the provider of text messages with this name, by default the first one.

        Raises:
            InvalidValue: the settings have no such provider.
        """
        found = next(iter(self.texts.values()), None) if name is None else self.texts.get(name)
        if found is None:
            message = (
                f"no provider of text messages is named {name!r}"
                if name
                else "no provider of text messages is configured"
            )
            raise InvalidValue(message, hint="add a table such as [telephony.twilio]")
        return found

    async def close(self) -> None:
        """Close the connections of all providers."""
        for one in {*self.voices.values(), *self.texts.values()}:
            await one.close()


CALLEE: Literal["callee"] = "callee"


async def dial(
    telephony: Telephony, order: Callable[[str], CallOrder], providers: Sequence[str]
) -> Dialled:
    """Place one call with the first provider that accepts it.

    The next provider is tried only after a refusal that concerns the previous provider or the
    number to call from; other providers would refuse the called number as well. After an unknown
    outcome no other provider is tried, because there may be a call.

    Args:
        order: returns the call's order for a provider, whose name its `status_url` contains.
        providers: names of providers, in the order in which they are tried.

    Raises:
        InvalidValue: no provider was given, or one is unknown; nothing was sent.
        ProviderRefused: there is definitely no call. If several providers refused, it is the
            refusal of the first, whose number was to be used, caused by that of the last; but a
            refusal that concerns the called number is raised unchanged.
        ProviderUnsure: there may be a call.
    """
    voices = [telephony.voice(name) for name in dict.fromkeys(providers)]
    if not voices:
        message = "no call provider was given"
        raise InvalidValue(message, hint='pass at least one, such as "twilio"')
    refusals: list[ProviderRefused] = []
    for voice in voices:
        try:
            return await voice.dial(order(voice.name))
        except ProviderRefused as refused:
            if refused.concerns == CALLEE:
                raise
            refusals.append(refused)
    raise refusals[0] from (refusals[-1] if len(refusals) > 1 else None)


Provider = Annotated[
    str, Path(description="Name of the provider in [telephony].", examples=["twilio"])
]
"""The type of a route's parameter `provider`, for `read_webhook`."""


async def read_webhook(
    service: Service, telephony: Telephony, name: str, request: Request
) -> HookRequest:
    """Read a provider's webhook, verify its signature, and return it.

    Raises:
        HTTPException: with 404, the provider is not configured.
        Unauthenticated: the signature is missing or wrong.
    """
    provider = telephony.voices.get(name) or telephony.texts.get(name)
    if provider is None:
        raise HTTPException(404)
    webhook = await received(request, service.options.public_url)
    provider.verify(webhook, service.timing.wall_at())
    return webhook


PROVIDERS: Mapping[str, str] = MappingProxyType(
    {
        "twilio": "headway.systems.telephony.twilio",
        "vonage": "headway.systems.telephony.vonage",
        "simulated": "headway.carrier",
    }
)
"""The module of each provider, which has a function `make(settings)`."""


def read_telephony(written: Mapping[str, object]) -> Telephony:
    """Create the configured providers, without connecting to them.

    Raises:
        InvalidValue: a provider is unknown, or its settings are not valid.
    """
    voices: dict[str, Voice] = {}
    texts: dict[str, TextProvider] = {}
    for name, settings in written.items():
        made = _make(name, settings)
        # A provider of both calls and text messages is in both.
        if hasattr(made, "dial"):
            voices[name] = cast("Voice", made)
        if hasattr(made, "send"):
            texts[name] = cast("TextProvider", made)
    return Telephony(voices, texts)


def _make(name: str, settings: object) -> object:
    package = PROVIDERS.get(name)
    if package is None:
        message = f"[telephony]: {name!r} is not a known provider"
        hint = did_you_mean(name, PROVIDERS, f"the providers are {', '.join(PROVIDERS)}")
        raise InvalidValue(message, hint=hint)
    if not isinstance(settings, Mapping):
        # The value is not shown: it may be a token.
        message = f"telephony.{name} is {type(settings).__name__}, not a table"
        raise InvalidValue(message, hint=f"write a table: [telephony.{name}]")
    return import_module(package).make(cast("Mapping[str, object]", settings))
