"""The providers of one server: whose webhooks are heard, and how they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request

from headway.contract.signals import Signal
from headway.core.errors import InvalidValue
from headway.runtime.timing import Timing
from headway.server.hooks.provider import Provider, Reading
from headway.server.hooks.request import HookRequest
from headway.server.hooks.seen_url import seen_url
from headway.server.hooks.settings import check_provider_name, read_hooks


class Hooks:
    """The providers of one server, each by the last part of its URL."""

    def __init__(
        self, written: Mapping[str, object], *, public_url: str | None, timing: Timing
    ) -> None:
        """Reads the table [hooks] of the settings.

        Args:
            written: the table.
            public_url: the server's address as providers call it; None if that is not known.
            timing: for the moments.

        Raises:
            InvalidValue: it holds what is unknown or unusable.
        """
        self._providers = read_hooks(written)
        self._readings: dict[str, Reading] = {}
        self._public_url = public_url
        self._timing = timing

    def add(self, name: str, provider: Provider) -> None:
        """Adds a provider of a system's own.

        Raises:
            InvalidValue: the name is taken, or cannot be the last part of a URL.
        """
        if check_provider_name(name) in self._providers:
            message = f"the provider {name!r} is there already"
            raise InvalidValue(message, hint="choose another name, or read it in another way")
        self._providers[name] = provider

    def read_with(self, name: str, reading: Reading) -> None:
        """Lets a system read a provider's webhooks in its own way; who proves them stays.

        Args:
            name: of the provider; without keys in the settings, it is not heard.
            reading: instead of the provider's.
        """
        self._readings[name] = reading

    async def take(self, name: str, request: Request) -> HookRequest:
        """A webhook, proved; a system's own routes may begin with it too.

        Args:
            name: of the provider.
            request: as it came.

        Raises:
            HTTPException: with 404, the provider is not configured.
            Unauthenticated: the provider has not signed it.
        """
        provider = self._providers.get(name)
        if provider is None:
            raise HTTPException(404)
        came = HookRequest(
            method=request.method,
            url=seen_url(request.scope, self._public_url),
            headers=tuple(request.headers.items()),
            body=await request.body(),
        )
        provider.verify(came, self._timing.wall_at())
        return came

    def signals(self, name: str, request: HookRequest) -> Sequence[Signal]:
        """What a proved webhook says.

        Raises:
            InvalidValue: it is not understood.
        """
        reading = self._readings.get(name) or self._providers[name].signals
        return reading(request)
