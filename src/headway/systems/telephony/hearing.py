"""Hearing a provider: its webhooks at a system's own routes, proved."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request

from headway.server.hooks.request import HookRequest
from headway.server.hooks.seen_url import seen_url
from headway.server.service import Service
from headway.systems.telephony.exchange import Exchange


async def take(service: Service, exchange: Exchange, name: str, request: Request) -> HookRequest:
    """A webhook of a provider, proved.

    Args:
        service: whose public URL and clock count.
        exchange: the providers.
        name: of the provider, as the URL has it.
        request: as it came.

    Returns:
        The webhook, to be read by the provider's own class.

    Raises:
        HTTPException: with 404, there is no such provider.
        Unauthenticated: the provider has not signed it.
    """
    provider = exchange.voices.get(name) or exchange.texts.get(name)
    if provider is None:
        raise HTTPException(404)
    came = HookRequest(
        method=request.method,
        url=seen_url(request.scope, service.options.public_url),
        headers=tuple(request.headers.items()),
        body=await request.body(),
    )
    provider.verify(came, service.timing.wall_at())
    return came
