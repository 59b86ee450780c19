"""Each request has an id: the caller's own, else one that is made here."""

from __future__ import annotations

import re

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uuid_utils import uuid7

HEADER = b"x-request-id"
_USABLE = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class RequestId:
    """Gives each request an id, which stands on its reply, its problem and its log lines."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == HEADER), b"")
        said = given.decode("latin-1")
        request_id = said if _USABLE.fullmatch(said) else str(uuid7())
        scope.setdefault("state", {})["request_id"] = request_id
        structlog.contextvars.bind_contextvars(request_id=request_id)

        async def with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (HEADER, request_id.encode())]
            await send(message)

        await self._app(scope, receive, with_id)
