"""Headers of every reply: nothing is sniffed, framed, cached or referred."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
NO_PAGE = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")


class SafeHeaders:
    """Sets the headers that keep a browser from making more of a reply than it is."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = _made_safe(message.get("headers", ()))
            await send(message)

        await self._app(scope, receive, with_headers)


def _made_safe(given: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers of a reply, with those that it has not said otherwise."""
    headers = list(given)
    said = dict(headers)
    headers += [one for one in ALWAYS if one[0] not in said]
    if NO_PAGE[0] not in said and not said.get(b"content-type", b"").startswith(b"text/html"):
        headers.append(NO_PAGE)
    return headers
