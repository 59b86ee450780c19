"""The exchange: the providers of [telephony], by name; calls, by one after another; webhooks."""

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
from headway.systems.telephony.texts import Texts
from headway.systems.telephony.voice import CallOrder, Dialled, Voice


class Exchange:
    """The providers of one server or worker.

    Attributes:
        voices: who places calls, by name, in the order of the settings.
        texts: who sends messages, by name, in the order of the settings.
    """

    def __init__(self, voices: Mapping[str, Voice], texts: Mapping[str, Texts]) -> None:
        self.voices = dict(voices)
        self.texts = dict(texts)

    def voice(self, name: str) -> Voice:
        """Return the provider of calls of this name.

        Raises:
            InvalidValue: the settings have no provider of this name.
        """
        found = self.voices.get(name)
        if found is None:
            message = f"no provider of calls is called {name!r}"
            known = ", ".join(self.voices) or "none"
            raise InvalidValue(message, hint=f"add [telephony.{name}]; there is {known}")
        return found

    def text(self, name: str | None = None) -> Texts:
        """Return the provider of messages of this name, else the first one.

        Raises:
            InvalidValue: the settings have no such provider.
        """
        found = next(iter(self.texts.values()), None) if name is None else self.texts.get(name)
        if found is None:
            message = (
                f"no provider of messages is called {name!r}"
                if name
                else "there is no provider of texts"
            )
            raise InvalidValue(message, hint="add a table such as [telephony.twilio]")
        return found

    async def close(self) -> None:
        """Close the connections of all."""
        for one in {*self.voices.values(), *self.texts.values()}:
            await one.close()


CALLEE: Literal["callee"] = "callee"


async def dial(
    exchange: Exchange, order: Callable[[str], CallOrder], providers: Sequence[str]
) -> Dialled:
    """Place one call, by the first provider that takes it.

    The next provider is asked only after a refusal that concerns the one before or the number that
    it was to call from. A refusal that concerns the called number would be the next one's too.
    After an unknown outcome no other provider is asked: there may be a call.

    Args:
        order: of the call, made for the provider of a name: its `status_url` holds that name.
        providers: their names, in the order in which they are asked; one or more.

    Returns:
        Who has taken the call, and its id there.

    Raises:
        InvalidValue: there is none, or one is unknown; no provider was asked.
        ProviderRefused: there is definitely no call. If several refused it is the first one's
            refusal, since its number was to be used, with the others as its causes; but a refusal
            that concerns who is called is raised as it is.
        ProviderUnsure: there may be a call.
    """
    voices = [exchange.voice(name) for name in dict.fromkeys(providers)]
    if not voices:
        message = "no provider of calls is named"
        raise InvalidValue(message, hint='name one, such as "twilio"')
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
"""A route's parameter: `provider: Provider`, for `take`."""


async def take(service: Service, exchange: Exchange, name: str, request: Request) -> HookRequest:
    """Return a provider's webhook once its signature is verified.

    Returns:
        The webhook, to be read by the provider's own class.

    Raises:
        HTTPException: with 404, there is no such provider.
        Unauthenticated: the provider has not signed it.
    """
    provider = exchange.voices.get(name) or exchange.texts.get(name)
    if provider is None:
        raise HTTPException(404)
    came = await received(request, service.options.public_url)
    provider.verify(came, service.timing.wall_at())
    return came


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
        # The value is not shown: it may be a token.
        message = f"telephony.{name} is {type(settings).__name__}, not a table"
        raise InvalidValue(message, hint=f"write a table: [telephony.{name}]")
    return import_module(package).make(cast("Mapping[str, object]", settings))
