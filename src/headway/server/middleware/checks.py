"""Middleware that protects requests and replies: ambiguous headers, browsers, response headers.

A proxy may read the first of two headers and the server the last; and a body with a
content coding is not what its Content-Type says.

An open server trusts whatever reaches it, and any page that its user visits can reach it: by a
form, by fetch, or by a name that resolves to 127.0.0.1. Programs send none of these headers.

Source: RFC 9112, section 3.2, for Host; Fetch Metadata Request Headers (W3C); RFC 6454, Origin.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.core.errors import Forbidden
from headway.server.replies.problem import problem, problem_of

ONCE = frozenset(
    {
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"host",
        b"idempotency-key",
        b"if-match",
        b"origin",
        b"sec-fetch-site",
        b"transfer-encoding",
    }
)
"""Headers that decide something, and so must not come twice."""
CODINGS = {b"content-encoding": b"identity", b"transfer-encoding": b"chunked"}
"""How a body may be coded."""


class UnambiguousHeaders:
    """Refuses requests that say something twice or name no host, and bodies that are compressed."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        refused = _refused(scope) if scope["type"] == "http" else None
        await (refused or self._app)(scope, receive, send)


def _refused(scope: Scope) -> Response | None:
    seen: set[bytes] = set()
    for name, value in scope["headers"]:
        if name not in ONCE:
            continue
        if name in seen:
            return problem(
                HTTPStatus.BAD_REQUEST,
                code="invalid_value",
                detail=f"the header {name.decode()} came twice",
                hint="send it once",
                request=Request(scope),
            )
        seen.add(name)
        if name in CODINGS and value.strip().lower() != CODINGS[name]:
            return problem(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                code="unsupported_media_type",
                detail=f"a body is taken as it is, and the header {name.decode()} says otherwise",
                hint="send the body without compression",
                request=Request(scope),
            )
    if scope["http_version"] == "1.1" and b"host" not in seen:
        return problem(
            HTTPStatus.BAD_REQUEST,
            code="invalid_value",
            detail="the header Host is missing",
            hint="HTTP/1.1 needs it: the name under which the server is called",
            request=Request(scope),
        )
    return None


SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
OUTSIDE = (
    *("/hooks/", "/calls/hooks/", "/field-service/hooks/", "/notifications/hooks/"),
    *("/notifications/unsubscribe/", "/healthz", "/readyz"),
)
"""What is there for the outside world, whatever name it uses."""


class CrossSiteCheck:
    """Refuses what a browser sends on behalf of another site."""

    def __init__(self, app: ASGIApp, *, hosts: tuple[str, ...] | None) -> None:
        """Stand before an app.

        Args:
            hosts: names under which it may be called; None for any.
        """
        self._app = app
        self._hosts = None if hosts is None else frozenset(one.lower() for one in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and not scope["path"].startswith(OUTSIDE):
            wrong = self._wrong(scope["method"], Headers(scope=scope))
            if wrong is not None:
                await problem_of(wrong, Request(scope))(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _wrong(self, method: str, headers: Headers) -> Forbidden | None:
        host = headers.get("host", "")
        if self._hosts is not None and _name(f"//{host}") not in self._hosts:
            message = f"this server is not called {host[:80]!r}"
            return Forbidden(message, hint="it is open, so it answers to its loopback names only")
        if method in SAFE:
            return None
        site = headers.get("sec-fetch-site")
        if site is not None and site not in {"same-origin", "none"}:
            message = "a page of another site sent this"
            return Forbidden(message, hint="call from a program, or from this server's own pages")
        origin = headers.get("origin")
        if site is None and origin is not None and _netloc(origin) != host:
            message = f"a page of {origin[:80]!r} sent this"
            return Forbidden(message, hint="call from a program, or from this server's own pages")
        return None


def _netloc(url: str) -> str | None:
    """Return where a page is from; None for nowhere that has a name, such as "null"."""
    try:
        return urlsplit(url).netloc or None
    except ValueError:
        return None


def _name(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
NO_PAGE = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")


class SecurityHeaders:
    """Sets the headers that keep a browser from making more of a reply than it is."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = _made_safe(message.get("headers", ()))
            await send(message)

        await self._app(scope, receive, with_headers)


def _made_safe(given: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers of a reply, with those that it has not said otherwise."""
    headers = list(given)
    said = dict(headers)
    headers += [one for one in ALWAYS if one[0] not in said]
    if NO_PAGE[0] not in said and not said.get(b"content-type", b"").startswith(b"text/html"):
        headers.append(NO_PAGE)
    return headers
