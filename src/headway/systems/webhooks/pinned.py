"""Connections to addresses that were looked at: what is checked is what is connected to.

Strangers may have requests sent to addresses on the open internet alone. The ranges are listed here
because those of `ipaddress` differ between versions of Python.

Source: the IANA special-purpose address registries for IPv4 and IPv6 (RFC 6890), where they say
that a range is not globally reachable; RFC 7526 and RFC 9637; the providers' documentation for
addresses at which a cloud serves its instances.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, cast

import httpcore

_CLOSED_4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # shared by carriers; the metadata of Alibaba Cloud
            "127.0.0.0/8",  # loopback
            "168.63.129.16/32",  # the platform of Azure
            "169.254.0.0/16",  # link-local; the metadata of most clouds
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # protocol assignments; the metadata of Oracle Cloud
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # relays of 6to4, deprecated
            "192.168.0.0/16",  # private
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
        ),
    )
)
_OPEN_6 = IPv6Network("2000::/3")
"""Global unicast; the rest is loopback, link-local, unique local (with the metadata of AWS),
multicast, reserved."""
_CLOSED_6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments, Teredo among them
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4, which a relay would carry to the IPv4 address within
            "3fff::/20",  # documentation
        ),
    )
)
_CARRYING_4 = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))
"""Addresses that end with the IPv4 address that is reached: mapped ones, and those of NAT64."""
_LOW_32 = 0xFFFF_FFFF


def is_public(text: str) -> bool:
    """Return whether an address is on the open internet, and so is the one that it stands for.

    Args:
        text: as a resolver gives it; a zone such as `%eth0` makes it a local one.
    """
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return False
        if not any(address in one for one in _CARRYING_4):
            return address in _OPEN_6 and not any(address in one for one in _CLOSED_6)
        address = IPv4Address(int(address) & _LOW_32)
    return not any(address in one for one in _CLOSED_4)


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
        """Connect nothing yet.

        Args:
            private: whether addresses that are not on the open internet are let pass.
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
        """Connect to the first address that answers.

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
