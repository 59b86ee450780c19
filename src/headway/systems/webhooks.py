"""Webhooks that systems send: signed, and only to public addresses.

A host is resolved once per connection, so the address that was checked is the one connected to. The
ranges are listed here because those of `ipaddress` differ between Python versions.

Source: the IANA special-purpose address registries for IPv4 and IPv6 (RFC 6890), where they say
that a range is not globally reachable; RFC 7526 and RFC 9637; the providers' documentation for
addresses at which a cloud serves its instances; the Standard Webhooks specification, "Webhook
payload", "Signature scheme" and "Verifying signatures".
"""

from __future__ import annotations

import asyncio
import hmac
import socket
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, NamedTuple, cast
from urllib.parse import SplitResult, urlsplit

import httpcore

from headway.core.duration import read_retry_after
from headway.core.errors import InvalidValue, ProviderError, ProviderRefused, ProviderUnsure
from headway.runtime.handler_results import Dead, Retry
from headway.runtime.timing import Timing
from headway.server.hooks.providers import SHORTEST_SECRET
from headway.server.hooks.request import strict_base64
from headway.systems.pre_send_check import PreSendTrace

_NOT_PUBLIC_4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # carrier-grade NAT; the metadata service of Alibaba Cloud
            "127.0.0.0/8",  # loopback
            "168.63.129.16/32",  # Azure's platform services
            "169.254.0.0/16",  # link-local; the metadata services of most clouds
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # protocol assignments; the metadata service of Oracle Cloud
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # 6to4 relays, deprecated
            "192.168.0.0/16",  # private
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
        ),
    )
)
_PUBLIC_6 = IPv6Network("2000::/3")
"""Global unicast. The rest is loopback, link-local, unique local (with the metadata service of
AWS), multicast or reserved."""
_NOT_PUBLIC_6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments, including Teredo
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4, which a relay would forward to the embedded IPv4 address
            "3fff::/20",  # documentation
        ),
    )
)
_EMBEDDING_4 = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))
"""IPv4-mapped and NAT64 addresses: their last 32 bits are the IPv4 address that is reached."""
_LOW_32 = 0xFFFF_FFFF


def is_public(text: str) -> bool:
    """Return whether an address, or the IPv4 address embedded in it, is public.

    Args:
        text: an address from a resolver; one with a zone such as `%eth0` is local.
    """
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return False
        if not any(address in one for one in _EMBEDDING_4):
            return address in _PUBLIC_6 and not any(address in one for one in _NOT_PUBLIC_6)
        address = IPv4Address(int(address) & _LOW_32)
    return not any(address in one for one in _NOT_PUBLIC_4)


Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host, for a port."""


class PrivateAddress(Exception):
    """The host has a private address; nothing was sent."""


async def resolve(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host from the system's resolver.

    Raises:
        OSError: the host has no address, or the resolver is unavailable.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class PinnedNetwork(httpcore.AsyncNetworkBackend):
    """Resolves a host once per connection, and connects to the address that it has checked.

    This prevents DNS rebinding: a name that resolves to a private address after the check.
    """

    def __init__(self, *, private: bool, resolve: Resolve = resolve) -> None:
        """Connect nothing yet.

        Args:
            private: whether private addresses are accepted.
        """
        self._private = private
        self._resolve = resolve
        # The library hides the class's type from type checkers.
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
            PrivateAddress: one of the host's addresses is private.
            ConnectError: the host has no address, or none of its addresses answers.
            ConnectTimeout: none of its addresses answered in time.
        """
        try:
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            message = f"the host has no address: {error}"
            raise httpcore.ConnectError(message) from error
        closed = [one for one in addresses if not (self._private or is_public(one))]
        if closed or not addresses:
            message = f"{host[:80]} is at {closed[0]}" if closed else f"{host[:80]} has no address"
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


PREFIX = "whsec_"


def read_keys(where: str, texts: Sequence[str]) -> tuple[bytes, ...]:
    """Decode signing keys.

    Args:
        where: the setting that contains the keys, for the message.
        texts: each `whsec_` followed by base64 of at least 24 bytes.

    Raises:
        InvalidValue: a key is not valid; the message never contains it.
    """
    keys: list[bytes] = []
    for number, text in enumerate(texts, start=1):
        key = strict_base64(text.removeprefix(PREFIX))
        if key is None or len(key) < SHORTEST_SECRET:
            message = f"{where}: key {number} is not a secret of {SHORTEST_SECRET} bytes in base64"
            raise InvalidValue(message, hint="whsec_ and the output of: openssl rand -base64 32")
        keys.append(key)
    return tuple(keys)


def sign(keys: Sequence[bytes], event: str, at_s: int, body: bytes) -> Mapping[str, str]:
    """Return the signature headers of a webhook.

    Args:
        keys: each signs, so that a receiver can switch to a new key at any time.
        event: id of the webhook; the same for each attempt.
        at_s: time of sending, in seconds UTC.
    """
    signed = f"{event}.{at_s}.".encode() + body
    signatures = (b64encode(hmac.digest(key, signed, sha256)).decode() for key in keys)
    return {
        "webhook-id": event,
        "webhook-timestamp": str(at_s),
        "webhook-signature": " ".join(f"v1,{one}" for one in signatures),
    }


LIMIT_S = 10.0
"""Timeout of a whole report: resolving, connecting, sending, and the head of the reply."""
MOST_AT_ONCE = 50
LONGEST_URL = 2_048
GONE = 410
"""HTTP status of a receiver that wants no further webhooks.

Source: the Standard Webhooks specification, "Operational considerations".
"""


class Posted(NamedTuple):
    """The head of a receiver's reply.

    Attributes:
        status: HTTP status.
        retry_after_ms: delay before the next attempt, if the receiver sent one.
    """

    status: int
    retry_after_ms: int | None


class Reporter:
    """Posts signed webhooks; follows no redirects, and reads only the head of a reply."""

    def __init__(
        self,
        keys: Sequence[str],
        *,
        where: str,
        what: str,
        private: bool,
        timing: Timing,
        resolve: Resolve = resolve,
    ) -> None:
        """Connect nothing yet.

        Args:
            keys: signing keys, `whsec_…`; each signs. Without any, nothing can be reported.
            where: the setting that contains the keys, such as "calls.reporting_keys".
            what: the field in which callers pass a URL, such as "reporting_webhook_url".
            private: whether private addresses are accepted.

        Raises:
            InvalidValue: a key is not valid.
        """
        self._where, self._what = where, what
        self._keys = read_keys(where, keys)
        self._timing = timing
        network = PinnedNetwork(private=private, resolve=resolve)
        self._pool = httpcore.AsyncConnectionPool(
            max_connections=MOST_AT_ONCE,
            # No keep-alive, so that the host is resolved and checked again for each webhook.
            max_keepalive_connections=0,
            network_backend=network,
        )
        self._semaphore = asyncio.Semaphore(MOST_AT_ONCE)

    def check(self, url: str) -> str:
        """Validate a URL for reports, and return it; no request is sent.

        Raises:
            InvalidValue: the URL is not valid, or there are no signing keys.
        """
        if not self._keys:
            message = f"{self._what}: this server has no keys to sign reports with"
            raise InvalidValue(message, hint=f'set {self._where} = ["whsec_…"]')
        _parse_url(self._what, url)
        return url

    async def report(self, url: str, event: str, body: bytes) -> None:
        """Post a result.

        Args:
            event: id of the webhook; the same for each attempt.

        Raises:
            Retry: it was not accepted, or the outcome is unknown; a retry is safe.
            Dead: it cannot be delivered, or the receiver wants no further reports.
        """
        try:
            status = (await self.post(url, event, body)).status
        except InvalidValue as error:
            raise Dead(error.message) from error
        except PrivateAddress as error:
            message = f"results are not reported to private addresses: {error}"
            raise Dead(message) from error
        except ProviderError as error:
            raise Retry(error.message) from error
        if status == GONE:
            message = "the webhook replied with 410: it accepts no more reports"
            raise Dead(message)
        if not 200 <= status < 300:
            message = f"the webhook answered {status}"
            raise Retry(message)

    async def post(self, url: str, event: str, body: bytes) -> Posted:
        """Post a webhook, once.

        Args:
            event: id of the webhook; the same for each attempt.

        Raises:
            InvalidValue: the URL is not valid, or there are no signing keys; nothing was sent.
            PrivateAddress: the host has a private address; nothing was sent.
            ProviderRefused: the receiver cannot be reached; nothing was sent.
            ProviderUnsure: the webhook, or part of it, was sent, but there was no reply.
        """
        parts = _parse_url(self._what, self.check(url))
        headers = {
            "host": parts.netloc,
            "content-type": "application/json",
            "content-length": str(len(body)),
            "user-agent": "headway",
            **sign(self._keys, event, self._timing.wall_at() // 1000, body),
        }
        first_byte = PreSendTrace()
        try:
            async with (
                self._semaphore,
                self._timing.limit(LIMIT_S),
                self._pool.stream(
                    "POST",
                    url,
                    headers=list(headers.items()),
                    content=body,
                    extensions={"trace": first_byte.trace},
                ) as reply,
            ):
                return Posted(reply.status, self._retry_after(reply))
        except (OSError, httpcore.NetworkError, httpcore.TimeoutException, TimeoutError) as error:
            message = f"the webhook does not answer: {type(error).__name__}"
            failed = error
        except httpcore.ProtocolError as error:
            message = "the webhook does not speak HTTP"
            failed = error
        if first_byte.begun:
            raise ProviderUnsure(message) from failed
        raise ProviderRefused(message, concerns="provider") from failed

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.aclose()

    def _retry_after(self, reply: httpcore.Response) -> int | None:
        headers = {name.lower(): value for name, value in reply.headers}
        text = headers.get(b"retry-after", b"").decode("latin-1")
        return read_retry_after(text, self._timing.wall_at())


def _parse_url(what: str, url: str) -> SplitResult:
    hint = "https://host/path, without a user or a fragment"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        message = f"{what} is not a URL"
        raise InvalidValue(message, hint=hint) from None
    fault = ""
    if parts.scheme not in {"https", "http"}:
        fault = "is not an https:// or http:// URL"
    elif not parts.hostname or port == 0:
        fault = "has no host"
    elif "@" in parts.netloc or parts.fragment:
        fault = "has a user or a fragment"
    elif len(url) > LONGEST_URL or not url.isascii() or not url.isprintable() or " " in url:
        fault = f"is longer than {LONGEST_URL} characters, or contains invalid characters"
    if fault:
        message = f"{what} {fault}"
        raise InvalidValue(message, hint=hint)
    return parts
