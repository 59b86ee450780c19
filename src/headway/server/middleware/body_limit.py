"""Bodies are limited in bytes and in the time they take to arrive."""

from __future__ import annotations

from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.core.errors import PayloadTooLarge
from headway.runtime.timing import Timing
from headway.server.replies.problem import problem_of


class BodyLimit:
    """Refuses a body that is too large, at its first byte too many, or too slow."""

    def __init__(self, app: ASGIApp, *, most: int, seconds: float, timing: Timing) -> None:
        """Stand before an app.

        Args:
            most: bytes of a body.
            seconds: from the first look at a body to its end.
        """
        self._app = app
        self._most = most
        self._seconds = seconds
        self._timing = timing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        said = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
        if said.isdigit() and int(said[:20]) > self._most:
            # Refused unread; the connection gives its client little time for the rest.
            await problem_of(self._too_large(), Request(scope))(scope, receive, send)
            return
        await self._app(scope, self._counted(receive), send)

    def _counted(self, receive: Receive) -> Receive:
        size = 0
        whole = False
        until = self._timing.monotonic() + self._seconds

        async def counted() -> Message:
            nonlocal size, whole
            if whole:
                return await receive()  # waits for the client to go away
            try:
                async with self._timing.limit(max(until - self._timing.monotonic(), 0)):
                    message = await receive()
            except TimeoutError:
                late = f"the body did not arrive within {self._seconds:g} s"
                raise HTTPException(HTTPStatus.REQUEST_TIMEOUT, late) from None
            size += len(message.get("body", b""))
            if size > self._most:
                raise self._too_large()
            whole = not message.get("more_body", False)
            return message

        return counted

    def _too_large(self) -> PayloadTooLarge:
        message = f"the body has more than {self._most} bytes"
        return PayloadTooLarge(message, hint="send it in parts")
