"""Metrics of requests: counted by the template of their route, never by their path."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.runtime.timing import Timing
from headway.server.metrics.families import DURATIONS, REQUESTS

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
UNKNOWN = "unknown"
"""The label of a route or a method that there is not."""
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class RequestMetrics:
    """Counts of one server's requests.

    Attributes:
        registry: where they are kept, with what the process uses.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._requests = Counter(
            REQUESTS.name, REQUESTS.help, REQUESTS.labels, registry=self.registry
        )
        self._durations = Histogram(
            DURATIONS.name,
            DURATIONS.help,
            DURATIONS.labels,
            registry=self.registry,
            buckets=BUCKETS,
        )

    def note(self, scope: Scope, status: int, seconds: float | None) -> None:
        """Counts a request that was answered.

        Args:
            scope: of the request, as the routes left it.
            status: of the reply.
            seconds: that it took; None if that says nothing.
        """
        route = getattr(scope.get("route"), "path", None) or UNKNOWN
        method = scope["method"] if scope["method"] in METHODS else UNKNOWN
        self._requests.labels(route, method, str(status)).inc()
        if seconds is not None:
            self._durations.labels(route, method).observe(seconds)


class CountRequests:
    """Counts each request, also one that a guard refused."""

    def __init__(self, app: ASGIApp, *, metrics: RequestMetrics, timing: Timing) -> None:
        self._app = app
        self._metrics = metrics
        self._timing = timing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = self._timing.monotonic()
        status, streams = 500, False

        async def noted(message: Message) -> None:
            nonlocal status, streams
            if message["type"] == "http.response.start":
                status = int(message["status"])
                streams = any(
                    name == b"content-type" and value.startswith(b"text/event-stream")
                    for name, value in message["headers"]
                )
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            taken = None if streams else self._timing.monotonic() - began
            self._metrics.note(scope, status, taken)
