"""Middleware that identifies and logs each request, and replies to unexpected errors."""

from __future__ import annotations

import logging
import re

import structlog
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uuid_utils import uuid7

from headway.runtime.timing import Timing
from headway.server.replies.problem import unexpected

HEADER = b"x-request-id"
_USABLE = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class RequestId:
    """Gives each request an id, which stands on its reply, its problem and its log lines."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
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


_log = structlog.stdlib.get_logger("headway.access")


class AccessLog:
    """Logs each request: at info if it failed, else at debug."""

    def __init__(self, app: ASGIApp, *, timing: Timing) -> None:
        self._app = app
        self._timing = timing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = self._timing.monotonic()
        status = 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            log = _log.info if status >= 400 else _log.debug
            state = scope.get("state", {})
            why = {"problem": state["problem"]} if "problem" in state else {}
            log(
                "request",
                method=scope["method"],
                # The query stays out: it may hold a signature.
                path=scope["path"],
                status=int(status),  # not as a member of an enumeration
                ms=round(1000 * (self._timing.monotonic() - began), 1),
                caller=getattr(state.get("caller"), "name", None),
                **why,
            )


_server_log = logging.getLogger("headway.server")


class UnexpectedErrors:
    """Replies to unexpected errors with a problem that reveals nothing; logs them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request.

        Raises:
            Exception: one that came when the reply had begun; the connection is closed.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = False

        async def noted(message: Message) -> None:
            nonlocal began
            began = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception as error:
            _server_log.exception("%s %s: %s", scope["method"], scope["path"], type(error).__name__)
            if began:
                raise
            await unexpected(Request(scope))(scope, receive, send)
