"""One log line for each request: who asked for what, how it ended, how long it took."""

from __future__ import annotations

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.runtime.timing import Timing

_log = structlog.stdlib.get_logger("headway.access")


class AccessLog:
    """Logs each request: at info if it failed, else at debug."""

    def __init__(self, app: ASGIApp, *, timing: Timing) -> None:
        self._app = app
        self._timing = timing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
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
            tell = _log.info if status >= 400 else _log.debug
            state = scope.get("state", {})
            why = {"problem": state["problem"]} if "problem" in state else {}
            tell(
                "request",
                method=scope["method"],
                # The query stays out: it may hold a signature.
                path=scope["path"],
                status=int(status),  # not as a member of an enumeration
                ms=round(1000 * (self._timing.monotonic() - began), 1),
                caller=getattr(state.get("caller"), "name", None),
                **why,
            )
