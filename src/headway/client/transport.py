"""HTTP requests over a connection pool: the only module that imports the HTTP library."""

from __future__ import annotations

import httpx

from headway.client.address import (
    HttpRequest,
    RawReply,
    ReplyLost,
    ServerAddress,
    Unreachable,
    not_a_server,
)

MOST_CONNECTIONS = 256
KEPT_CONNECTIONS = 32
KEPT_FOR_S = 30.0
"""Seconds for which an idle connection is kept: less than the server keeps it, so that no call is
sent over a connection that is closing."""
CONNECT_S = 5.0


class Transport:
    """Connection pool to one server; used in one event loop.

    Raises:
        InvalidValue: the HTTP library cannot make requests to the URL.
    """

    def __init__(self, address: ServerAddress) -> None:
        headers = {
            "Accept": "application/json",
            "Content-Type": "application/json",
            "User-Agent": "headway",
        }
        if address.token is not None:
            headers["Authorization"] = f"Bearer {address.token}"
        try:
            httpx.Request("GET", address.url)
        except (httpx.InvalidURL, UnicodeError):
            # Its rules for names of hosts are stricter than those of the address.
            raise not_a_server(address.url) from None
        self._url = address.url
        self._http = httpx.AsyncClient(
            headers=headers,
            limits=httpx.Limits(
                max_connections=MOST_CONNECTIONS,
                max_keepalive_connections=KEPT_CONNECTIONS,
                keepalive_expiry=KEPT_FOR_S,
            ),
            # A proxy from the environment cannot reach this machine's loopback.
            trust_env=not address.is_loopback,
        )

    async def send(self, request: HttpRequest, limit_s: float) -> RawReply:
        """Send a request and read the response.

        Raises:
            Unreachable: the request was not sent.
            ReplyLost: the request was sent, perhaps only in part.
        """
        try:
            reply = await self._http.request(
                request.method,
                self._url + request.path,
                content=request.content,
                params=request.params or None,
                headers=request.headers,
                timeout=httpx.Timeout(limit_s, connect=min(CONNECT_S, limit_s)),
            )
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise Unreachable(_text_of(error)) from error
        except httpx.HTTPError as error:
            raise ReplyLost(_text_of(error)) from error
        return RawReply(reply.status_code, reply.content, reply.headers.get("Retry-After", ""))

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()


def _text_of(error: Exception) -> str:
    return str(error) or type(error).__name__
