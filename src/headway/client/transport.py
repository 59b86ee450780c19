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

KEPT_CONNECTIONS = 32
KEPT_FOR_S = 30.0
"""Seconds for which an idle connection is kept: less than the server keeps it, so that no call is
sent over a connection that is closing."""
CONNECT_S = 5.0


class Transport:
    """Connection pool to one server; used in one event loop.

    Each request takes the connection that was used last. The HTTP library has a pool, too, but that
    examines all connections and all waiting requests at each request and reply.

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
        self._headers = headers
        # A proxy from the environment cannot reach this machine's loopback.
        self._trust_env = not address.is_loopback
        # Loading the certificates takes longer than a request.
        self._verify = httpx.create_ssl_context()
        self._idle: list[httpx.AsyncClient] = []
        self._busy: set[httpx.AsyncClient] = set()

    def _new_connection(self) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=1, keepalive_expiry=KEPT_FOR_S)
        return httpx.AsyncClient(
            headers=self._headers, limits=limits, verify=self._verify, trust_env=self._trust_env
        )

    async def send(self, request: HttpRequest, limit_s: float) -> RawReply:
        """Send a request and read the response.

        Raises:
            Unreachable: the request was not sent.
            ReplyLost: the request was sent, perhaps only in part.
        """
        connection = self._idle.pop() if self._idle else self._new_connection()
        self._busy.add(connection)
        kept = False
        try:
            reply = await connection.request(
                request.method,
                self._url + request.path,
                content=request.content,
                params=request.params or None,
                headers=request.headers,
                timeout=httpx.Timeout(limit_s, connect=min(CONNECT_S, limit_s)),
            )
            kept = len(self._idle) < KEPT_CONNECTIONS
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise Unreachable(_text_of(error)) from error
        except httpx.HTTPError as error:
            raise ReplyLost(_text_of(error)) from error
        finally:
            kept = kept and connection in self._busy
            self._busy.discard(connection)
            if kept:
                self._idle.append(connection)
            else:
                await connection.aclose()
        return RawReply(reply.status_code, reply.content, reply.headers.get("Retry-After", ""))

    async def close(self) -> None:
        """Close all connections."""
        connections = [*self._idle, *self._busy]
        self._idle.clear()
        self._busy.clear()
        for connection in connections:
            await connection.aclose()


def _text_of(error: Exception) -> str:
    return str(error) or type(error).__name__
