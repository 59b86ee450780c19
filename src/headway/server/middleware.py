"""Middleware around every request.

It identifies, counts and logs requests, replies to unexpected errors, refuses ambiguous headers
and requests from pages of other sites, and limits bodies in bytes and time.

Ambiguous: a proxy may read the first of two headers and the server the last, and a body with a
content coding is not what its Content-Type says. Other sites: an open server trusts every request,
and any page that its user visits can send one, by a form, by fetch, or through a name that
resolves to 127.0.0.1. Programs do not send the headers by which these requests are recognized.

Source: RFC 9112, section 3.2, for Host; Fetch Metadata Request Headers (W3C); RFC 6454, Origin;
W3C Trace Context, the header `traceparent`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from http import HTTPStatus
from urllib.parse import SplitResult, unquote_to_bytes, urlsplit

import structlog
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uuid_utils import uuid7

from headway.core.errors import Forbidden, PayloadTooLarge
from headway.runtime.timing import Timing
from headway.server.metrics import RequestMetrics
from headway.server.problems import problem, problem_of, unexpected

HEADER = b"x-request-id"
_USABLE = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_LOGIN = re.compile(r"://.*@", re.DOTALL)
_access_log = structlog.stdlib.get_logger("headway.access")
_log = logging.getLogger("headway.server")

ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
NO_PAGE = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")


class RequestEnvelope:
    """The outermost middleware: request ids, logs, metrics, safe headers, unexpected errors.

    The request id is in the reply, its problem and its log lines. Every request is counted and
    logged, even if a check refused it: at info if it failed, otherwise at debug. An unexpected
    error is logged, and the reply is a problem that reveals nothing about it.
    """

    def __init__(
        self, app: ASGIApp, *, timing: Timing, metrics: RequestMetrics | None = None
    ) -> None:
        self._app = app
        self._timing = timing
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request.

        Raises:
            Exception: raised after the reply had started; the connection is closed.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        structlog.contextvars.bind_contextvars(request_id=request_id)
        started_at = self._timing.monotonic()
        status, replying, streams = 500, False, False

        async def send_noted(message: Message) -> None:
            nonlocal status, replying, streams
            replying = True
            if message["type"] == "http.response.start":
                status = int(message["status"])  # a plain int, not an HTTPStatus
                headers = _with_safe_headers(message.get("headers", ()))
                streams = dict(headers).get(b"content-type", b"").startswith(b"text/event-stream")
                message["headers"] = [*headers, (HEADER, request_id.encode())]
            await send(message)

        try:
            await self._app(scope, receive, send_noted)
        except Exception as error:
            _log.exception(
                "unexpected error in %s %s: %s",
                scope["method"],
                _shown_path(scope),
                type(error).__name__,
            )
            if replying:
                raise
            await unexpected(Request(scope))(scope, receive, send_noted)
        finally:
            seconds = self._timing.monotonic() - started_at
            if self._metrics is not None:
                self._metrics.note(scope, status, None if streams else seconds)
            _log_request(scope, status, seconds)


def _request_id(scope: Scope) -> str:
    given = next((value for name, value in scope["headers"] if name == HEADER), b"")
    value = given.decode("latin-1")
    return value if _USABLE.fullmatch(value) else str(uuid7())


def _log_request(scope: Scope, status: int, seconds: float) -> None:
    log = _access_log.info if status >= 400 else _access_log.debug
    state = scope["state"]
    why = {"problem": state["problem"]} if "problem" in state else {}
    log(
        "request",
        method=scope["method"],
        # Without the query, which may contain a signature.
        path=_shown_path(scope),
        status=status,
        ms=round(1000 * seconds, 1),
        caller=getattr(state.get("caller"), "name", None),
        **why,
    )


def _shown_path(scope: Scope) -> str:
    """Return the path for the log; a URL in it may contain a user and a password."""
    path: str = scope["path"]
    return _LOGIN.sub("://***@", path) if "@" in path else path


def _with_safe_headers(given: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers of a reply, with the default security headers that it lacks."""
    headers = list(given)
    present = dict(headers)
    headers += [one for one in ALWAYS if one[0] not in present]
    if NO_PAGE[0] not in present and not present.get(b"content-type", b"").startswith(b"text/html"):
        headers.append(NO_PAGE)
    return headers


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
"""Headers that affect how a request is handled, and so must not be repeated."""
CODINGS = {b"content-encoding": b"identity", b"transfer-encoding": b"chunked"}
"""Accepted codings of a body."""


class UnambiguousRequest:
    """Refuses ambiguous requests.

    They have a repeated header, no host, a compressed body, or a path or query that is not UTF-8.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        refusal = _refusal(scope) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)


def _refusal(scope: Scope) -> Response | None:
    def refused(detail: str, hint: str, code: str = "invalid_value") -> Response:
        status = 400 if code == "invalid_value" else 415
        return problem(status, code=code, detail=detail, hint=hint, request=Request(scope))

    seen: set[bytes] = set()
    for name, value in scope["headers"]:
        if name not in ONCE:
            continue
        if name in seen:
            return refused(f"the header {name.decode()} was sent twice", "send it once")
        seen.add(name)
        if name in CODINGS and value.strip().lower() != CODINGS[name]:
            detail = f"the header {name.decode()} must be {CODINGS[name].decode()!r}"
            hint = "send the body without compression"
            return refused(detail, hint, "unsupported_media_type")
    for what in ("path", "query"):
        sent: bytes = scope["raw_path" if what == "path" else "query_string"]
        if not _is_utf8(sent):
            detail = f"the {what} {sent[:200].decode('latin-1')!r} is not UTF-8"
            return refused(detail, "write each byte of a name in UTF-8 as %XX")
    if scope["http_version"] == "1.1" and b"host" not in seen:
        hint = "HTTP/1.1 requires it: send the host name of the server"
        return refused("the header Host is missing", hint)
    return None


def _is_utf8(sent: bytes) -> bool:
    """Return whether it decodes to UTF-8; otherwise different bytes could be the same name."""
    if b"%" not in sent and sent.isascii():
        return True
    try:
        unquote_to_bytes(sent).decode()
    except UnicodeDecodeError:
        return False
    return True


SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
OUTSIDE = (
    *("/hooks/", "/calls/hooks/", "/field-service/hooks/", "/notifications/hooks/"),
    *("/notifications/unsubscribe/", "/healthz", "/readyz"),
)
"""Paths for the outside world, which may use any host name."""


class CrossSiteCheck:
    """Refuses requests that a browser sends on behalf of another site."""

    def __init__(self, app: ASGIApp, *, hosts: tuple[str, ...] | None) -> None:
        """Wrap an app.

        Args:
            hosts: host names that requests may use; None for any.
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
        if self._hosts is not None and (_split(f"//{host}").hostname or "") not in self._hosts:
            message = f"{host[:80]!r} is not a name of this server"
            return Forbidden(message, hint="it is open, so it accepts only its loopback names")
        if method in SAFE:
            return None
        site = headers.get("sec-fetch-site")
        if site is not None and site not in {"same-origin", "none"}:
            message = "the request was sent by a page of another site"
            return Forbidden(message, hint="call from a program, or from this server's own pages")
        origin = headers.get("origin")
        if site is None and origin is not None and (_split(origin).netloc or None) != host:
            message = f"the request was sent by a page of {origin[:80]!r}"
            return Forbidden(message, hint="call from a program, or from this server's own pages")
        return None


def _split(url: str) -> SplitResult:
    """Return the parts of a URL; all are empty if the text is not a URL, such as "null"."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


class BodyLimit:
    """Refuses a body that is too large or arrives too slowly, without reading the rest."""

    def __init__(self, app: ASGIApp, *, most: int, seconds: float, timing: Timing) -> None:
        """Wrap an app.

        Args:
            most: maximum size of a body, in bytes.
            seconds: maximum time for a body to arrive.
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
        length = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
        if length.isdigit() and int(length[:20]) > self._most:
            # Refused unread; the connection gives the client little time to send the rest.
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
                return await receive()  # waits for the client to disconnect
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


_TRACE_HEADERS = frozenset({"traceparent", "tracestate"})


class TraceContext:
    """Serves each request within the trace context of its caller, for the jobs that it creates."""

    def __init__(self, app: ASGIApp) -> None:
        # Imported here because the package is an extra.
        from opentelemetry import context  # noqa: PLC0415
        from opentelemetry.trace.propagation import tracecontext  # noqa: PLC0415

        self._app = app
        self._context = context
        self._propagator = tracecontext.TraceContextTextMapPropagator()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        carried = {
            key: value.decode("latin-1")
            for name, value in scope["headers"]
            if (key := name.decode("latin-1")) in _TRACE_HEADERS
        }
        token = self._context.attach(self._propagator.extract(carried, self._context.Context()))
        try:
            await self._app(scope, receive, send)
        finally:
            self._context.detach(token)
