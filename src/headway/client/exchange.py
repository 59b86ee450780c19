"""A request and its response, independent of the HTTP library."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Unreachable(Exception):
    """No connection could be made; nothing was sent."""


class ReplyLost(Exception):
    """The request was sent, perhaps in part, and no complete response came."""


class HttpRequest(NamedTuple):
    """A request to a path below the server's address, with a JSON body or without."""

    method: str
    path: str
    content: bytes | None
    params: tuple[tuple[str, str], ...]
    headers: tuple[tuple[str, str], ...]


class RawReply(NamedTuple):
    """The response."""

    status: int
    body: bytes
    retry_after: str


class HttpTransport(Protocol):
    """Sends requests to one server."""

    async def send(self, request: HttpRequest, limit_s: float) -> RawReply:
        """Send a request and read the response.

        Raises:
            Unreachable: it was not sent.
            ReplyLost: it was sent, perhaps in part.
        """
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...
