"""Requests have one meaning: what two readers could take differently is refused.

A proxy may look at the first of two headers and the server at the last; and a body that is coded
in some way is not what its Content-Type says.

Source: RFC 9112, section 3.2, for Host.
"""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from headway.server.replies.problem import problem

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


class OneMeaning:
    """Refuses requests that say something twice or name no host, and bodies that are compressed."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
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
