"""Address of a server, and requests and replies, independent of the HTTP library."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from headway.core.errors import InvalidValue
from headway.core.naming import check_host

DEFAULT_URL = "http://127.0.0.1:8080"
"""Used if neither an argument nor HEADWAY_URL gives a URL."""

SCHEMES = ("http", "https")


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerAddress:
    """Address of a server.

    Attributes:
        url: without a trailing slash.
        token: sent with each call, if there is one.
    """

    url: str
    token: str | None = field(default=None, repr=False)

    @property
    def is_loopback(self) -> bool:
        """Whether the server is on this machine."""
        host = urlsplit(self.url).hostname or ""
        try:
            return ip_address(host).is_loopback
        except ValueError:
            return host == "localhost" or host.endswith(".localhost")

    @property
    def is_open(self) -> bool:
        """Whether the token is sent unencrypted to another machine."""
        return self.token is not None and self.url.startswith("http:") and not self.is_loopback


def read_address(url: str | None = None, token: str | None = None) -> ServerAddress:
    """Read the address of a server from arguments, or else from the environment.

    Raises:
        InvalidValue: the URL is not a server's, or the token is not well-formed.
    """
    return ServerAddress(
        url=_checked_url(url or os.environ.get("HEADWAY_URL") or DEFAULT_URL),
        token=_checked_token(token or os.environ.get("HEADWAY_TOKEN") or None),
    )


def is_server(url: str) -> bool:
    """Return whether this is the URL of a server rather than of a store."""
    return url.partition("://")[0] in SCHEMES


def not_a_server(url: str) -> InvalidValue:
    """Return the error for a URL that no server can have."""
    message = f"{url[:80]!r} is not the URL of a server"
    hint = "use http://127.0.0.1:8080 or https://jobs.example.com, for example"
    return InvalidValue(message, hint=hint)


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port
        check_host(parts.hostname or "")
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.username is not None or parts.password is not None:
        message = "the server's URL contains a user name or a password"
        raise InvalidValue(message, hint="pass the token as token=, or set HEADWAY_TOKEN")
    if parts.scheme not in SCHEMES or not parts.hostname or port == 0 or not url.isprintable():
        raise not_a_server(url)
    if parts.query or parts.fragment:
        message = "the server's URL contains a query or a fragment"
        raise InvalidValue(message, hint="use https://jobs.example.com, with a path if needed")
    return url.rstrip("/")


def _checked_token(token: str | None) -> str | None:
    # The message never shows the value: it is a secret even if it is malformed.
    if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
        message = "the token is not well-formed"
        raise InvalidValue(message, hint="pass it exactly as `headway token create` printed it")
    return token


class Unreachable(Exception):
    """No connection could be made; nothing was sent."""


class ReplyLost(Exception):
    """The request was sent, perhaps only in part, and no complete response arrived."""


class HttpRequest(NamedTuple):
    """A request to a path below the server's address, with or without a JSON body."""

    method: str
    path: str
    content: bytes | None
    params: tuple[tuple[str, str], ...]
    headers: tuple[tuple[str, str], ...]


class RawReply(NamedTuple):
    """A response."""

    status: int
    body: bytes
    retry_after: str


class HttpTransport(Protocol):
    """Sends requests to one server."""

    async def send(self, request: HttpRequest, limit_s: float) -> RawReply:
        """Send a request and read the response."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...
