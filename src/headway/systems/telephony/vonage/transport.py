"""How Vonage's official client reaches Vonage: by the wire; and what a refusal concerns."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from urllib.parse import urlsplit

import httpx
import msgspec
from anyio import from_thread
from requests import PreparedRequest, Response
from requests.adapters import BaseAdapter
from vonage_http_client.auth import Auth  # pyright: ignore[reportMissingTypeStubs]  (it has types, but does not say so)
from vonage_http_client.http_client import HttpClient  # pyright: ignore[reportMissingTypeStubs]  (as above)

from headway.systems.telephony.wire import Refusal, Wire


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
        """Send one request, once.

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
    """The official client, without its retries.

    It would post a call up to ten more times when the connection ends without a reply, and each may
    place a call. Each request gets a new instance, because one keeps the headers of the last
    request.
    """

    def __init__(self, auth: Auth, wire: Wire, base_url: str) -> None:
        """Sends by the wire."""
        super().__init__(auth)
        self._session.trust_env = False  # the wire handles proxies
        self._session.mount("https://", WireAdapter(wire, base_url))


def _headers(request: PreparedRequest) -> dict[str, str]:
    # How the bytes travel is the wire's affair.
    travel = {"connection", "content-length", "accept-encoding", "transfer-encoding"}
    return {
        name: value.decode() if isinstance(value, bytes) else str(value)
        for name, value in request.headers.items()
        if name.lower() not in travel
    }


UNKNOWN = "404"
"""There is no such call."""


class _Parameter(msgspec.Struct):
    name: str = ""
    reason: str = ""


class _Error(msgspec.Struct):
    type: str = ""
    title: str = ""
    error_title: str = ""
    detail: str = ""
    invalid_parameters: list[_Parameter] | None = None


def read_refusal(status: int, body: bytes) -> Refusal:
    """What a reply of 4xx says.

    Returns:
        Whom it concerns: by the parameters that are invalid, else by the status; a reply that is
        no error of Vonage's concerns whatever stands at that address.
    """
    try:
        said = msgspec.json.decode(body, type=_Error)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        said = _Error()
    title = said.title or said.error_title
    if not title and not said.type:
        return Refusal(concerns="provider", text="there is no error of Vonage's in the reply")
    wrong = said.invalid_parameters or []
    reasons = [f"{one.name} {one.reason}".strip() for one in wrong]
    text = ": ".join(part for part in (title or said.type, said.detail, *reasons) if part)
    return Refusal(concerns=_concerns(status, wrong), code=str(status), text=text)


def _concerns(status: int, wrong: list[_Parameter]) -> str:
    if status in {401, 402, 403, 404, 407}:
        return "provider"
    places = {one.name.partition(".")[0].partition("[")[0] for one in wrong}
    if "to" in places or not places:
        return "callee"
    return "sender" if "from" in places else "provider"
