"""Connections to addresses that were looked at: what is checked is what is connected to."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, cast

import httpcore

from headway.systems.calls.reporting.addresses import is_public

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host, for a port."""


class PrivateAddress(Exception):
    """The host is not on the open internet; nothing was sent."""


async def resolve(host: str, port: int) -> Sequence[str]:
    """The addresses of a host, as the system resolves it.

    Raises:
        OSError: it has none, or the resolver is away.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class PinnedNetwork(httpcore.AsyncNetworkBackend):
    """Resolves a host once for each connection, and connects to what it has checked.

    A host whose name stands for another address a moment later gains nothing by that.
    """

    def __init__(self, *, private: bool, resolve: Resolve = resolve) -> None:
        """Connects nothing yet.

        Args:
            private: whether addresses that are not on the open internet are let pass.
            resolve: finds addresses.
        """
        self._private = private
        self._resolve = resolve
        # The library hides its class from those who read types.
        self._inner = cast("httpcore.AsyncNetworkBackend", httpcore.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  (the library's own parameter)
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connects to the first address that answers.

        Raises:
            PrivateAddress: one of the host's addresses is not on the open internet.
            ConnectError: it has no address, or none of them answers.
            ConnectTimeout: none of them answered in time.
        """
        try:
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            message = f"the host has no address: {error}"
            raise httpcore.ConnectError(message) from error
        closed = [one for one in addresses if not (self._private or is_public(one))]
        if closed or not addresses:
            message = f"{host[:80]} is at {closed[0]}" if closed else f"{host[:80]} is nowhere"
            raise PrivateAddress(message)
        *others, last = addresses
        for one in others:
            try:
                return await self._inner.connect_tcp(
                    one, port, timeout, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        return await self._inner.connect_tcp(last, port, timeout, local_address, socket_options)
