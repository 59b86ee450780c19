"""What nobody expected is answered as a problem too, with all that guards put on replies."""

from __future__ import annotations

import logging

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.server.replies.problem import unexpected

_log = logging.getLogger("headway.server")


class Unexpected:
    """Answers an error that no handler knows; it is logged with its trace, and told to nobody."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request.

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
            _log.exception("%s %s: %s", scope["method"], scope["path"], type(error).__name__)
            if began:
                raise
            await unexpected(Request(scope))(scope, receive, send)
