"""Trace context: jobs that a request creates are linked with the span that sent the request.

Source: W3C Trace Context, the header `traceparent`.
"""

from __future__ import annotations

from opentelemetry.context import Context, attach, detach
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Receive, Scope, Send

_READ = frozenset({"traceparent", "tracestate"})
_propagator = TraceContextTextMapPropagator()


class TraceContext:
    """Serves each request within the span that its caller names."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        carried = {
            key: value.decode("latin-1")
            for name, value in scope["headers"]
            if (key := name.decode("latin-1")) in _READ
        }
        token = attach(_propagator.extract(carried, Context()))
        try:
            await self._app(scope, receive, send)
        finally:
            detach(token)
