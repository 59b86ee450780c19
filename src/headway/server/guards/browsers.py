"""Browsers: no page of another site may make one change anything here, or read it.

An open server trusts whoever reaches it, and every page that its user visits can: by a form, by
fetch, or by a name that it lets point to 127.0.0.1. Programs send none of these headers.

Source: Fetch Metadata Request Headers (W3C); RFC 6454 for Origin.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from headway.core.errors import Forbidden
from headway.server.replies.problem import problem_of

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
OUTSIDE = (
    *("/hooks/", "/calls/hooks/", "/field-service/hooks/", "/notifications/hooks/"),
    *("/notifications/unsubscribe/", "/healthz", "/readyz"),
)
"""What is there for the outside world, whatever name it uses."""


class Browsers:
    """Refuses what a browser sends on behalf of another site."""

    def __init__(self, app: ASGIApp, *, hosts: tuple[str, ...] | None) -> None:
        """Stands before an app.

        Args:
            app: what is guarded.
            hosts: names under which it may be called; None for any.
        """
        self._app = app
        self._hosts = None if hosts is None else frozenset(one.lower() for one in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
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
    """Where a page is from; None for nowhere that has a name, such as "null"."""
    try:
        return urlsplit(url).netloc or None
    except ValueError:
        return None


def _name(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""
