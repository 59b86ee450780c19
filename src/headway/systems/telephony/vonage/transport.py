"""How Vonage's official client reaches Vonage: by the wire, at the address of the settings."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from urllib.parse import urlsplit

import httpx
from anyio import from_thread
from requests import PreparedRequest, Response
from requests.adapters import BaseAdapter
from vonage_http_client.auth import Auth  # pyright: ignore[reportMissingTypeStubs]  (it has types, but does not say so)
from vonage_http_client.http_client import HttpClient  # pyright: ignore[reportMissingTypeStubs]  (as above)

from headway.systems.telephony.wire import Wire


class WireAdapter(BaseAdapter):
    """The seam that `requests` has for its connections; for a thread that anyio has started."""

    def __init__(self, wire: Wire, base_url: str) -> None:
        """Sends by the wire, to this address instead of Vonage's own."""
        super().__init__()
        self._wire = wire
        self._base_url = base_url

    def send(
        self,
        request: PreparedRequest,
        stream: bool = False,
        timeout: object = None,
        verify: object = True,
        cert: object = None,
        proxies: Mapping[str, str] | None = None,
    ) -> Response:
        """Sends one request, once.

        Returns:
            A reply of 2xx.

        Raises:
            ProviderRefused: see `Wire.send`.
            ProviderUnsure: see `Wire.send`.
            TypeError: its body is a stream; nothing was sent.
        """
        del stream, timeout, verify, cert, proxies  # the wire has its own
        parts = urlsplit(request.url or "")
        body = request.body
        if not isinstance(body, str | bytes | None):
            message = "a request whose body is not at hand"
            raise TypeError(message)
        asked = httpx.Request(
            request.method or "GET",
            f"{self._base_url}{parts.path}" + (f"?{parts.query}" if parts.query else ""),
            headers=_headers(request),
            content=body,
        )
        said = from_thread.run(self._wire.send, asked)
        reply = Response()
        reply.status_code = said.status_code
        reply.headers.update(said.headers)
        reply.raw = BytesIO(said.content)
        reply.url, reply.request = request.url or "", request
        return reply

    def close(self) -> None:
        """Nothing: the wire is closed by who made it."""


class WireClient(HttpClient):
    """The official client, without the parts of it that ask again.

    It posts a call up to ten times more when the connection ends without a reply, and each of them
    may be a call. It is made anew for each request: it keeps the headers of the last one.
    """

    def __init__(self, auth: Auth, wire: Wire, base_url: str) -> None:
        """Sends by the wire."""
        super().__init__(auth)
        self._session.trust_env = False  # the wire sees to proxies
        self._session.mount("https://", WireAdapter(wire, base_url))


def _headers(request: PreparedRequest) -> dict[str, str]:
    # How the bytes travel is the wire's affair.
    travel = {"connection", "content-length", "accept-encoding", "transfer-encoding"}
    return {
        name: value.decode() if isinstance(value, bytes) else str(value)
        for name, value in request.headers.items()
        if name.lower() not in travel
    }
