"""HTTP calls to a server: errors, retries, and the connections they use."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, cast
from uuid import uuid4

import msgspec

from headway.client.address import HttpRequest, HttpTransport, ReplyLost, ServerAddress, Unreachable
from headway.core.duration import read_retry_after
from headway.core.errors import (
    CallerError,
    Forbidden,
    HeadwayError,
    InvalidValue,
    InvariantBroken,
    OutcomeUnknown,
    StoreError,
    StoreFull,
    StoreUnavailable,
    TooManyRequests,
    Unauthenticated,
)
from headway.core.retry import draw
from headway.runtime.timing import Timing

PROBLEM = "application/problem+json"

_BUG = "bug"
_HOW_TO_OPEN = "pass token=, or set HEADWAY_TOKEN; `headway token create` creates one"
_URL_HINT = "is this the address of a Headway server?"

_decode = msgspec.json.Decoder().decode


def error_of(status: int, body: bytes, *, what: str, writes: bool) -> HeadwayError:
    """Return the error for a reply.

    Args:
        body: body of the reply; a problem if a Headway server wrote it.
        what: the call, for the message, such as "POST /v1/jobs".
        writes: whether the call may have written something.

    Returns:
        The error with the problem's code; the nearest branch if the code is unknown.
    """
    problem = _problem(body)
    code = problem.get("code", "")
    if not code:
        return _of_other_program(status, what, writes=writes)
    detail = problem.get("detail") or f"{what} returned status {status}"
    hint = problem.get("hint", "")
    if code == _BUG:
        seen = problem.get("instance", "")
        message = f"{what}: {detail}"
        return InvariantBroken(message, hint=f"{hint}: {seen}" if seen else hint)
    kind = _KINDS.get(code) or _branch(status)
    if kind is Unauthenticated:
        hint = hint or _HOW_TO_OPEN
    return kind(detail, hint=hint)


def _problem(body: bytes) -> Mapping[str, str]:
    try:
        decoded = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    if not isinstance(decoded, dict):
        return {}
    fields = cast("dict[str, object]", decoded)
    return {name: value for name, value in fields.items() if isinstance(value, str)}


def _branch(status: int) -> type[HeadwayError]:
    """Return the nearest branch for a status with an unknown code."""
    known: dict[int, type[HeadwayError]] = {
        401: Unauthenticated,
        403: Forbidden,
        429: TooManyRequests,
        500: InvariantBroken,
        503: StoreUnavailable,
        507: StoreFull,
    }
    if status in known:
        return known[status]
    return CallerError if status < 500 else StoreError


def _of_other_program(status: int, what: str, *, writes: bool) -> HeadwayError:
    """Return the error for a reply from a proxy or another program."""
    message = f"{what} returned status {status}"
    if status in {401, 407}:
        return Unauthenticated(message, hint=_HOW_TO_OPEN)
    if status == 403:
        return Forbidden(message, hint="a proxy in front of the server refused the call")
    if status == 429:
        return TooManyRequests(message, hint="a proxy in front of the server limits the calls")
    if status == 503:
        return StoreUnavailable(message, hint="there is no server at this address")
    if status >= 500:
        # A proxy does not know whether the call reached the server.
        return (OutcomeUnknown if writes else StoreUnavailable)(message)
    return CallerError(message, hint=_URL_HINT)


def _all(kind: type[HeadwayError]) -> Iterator[type[HeadwayError]]:
    yield kind
    for one in kind.__subclasses__():
        yield from _all(one)


_KINDS: Mapping[str, type[HeadwayError]] = {kind.code: kind for kind in _all(HeadwayError)}


Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Params = tuple[tuple[str, str], ...]

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
MOST_AT_ONCE = 64
"""Maximum number of calls at once, besides long polls; others wait for their turn. Thousands of
connections opened together take longer than one of them may."""
LONGEST_WAIT_S = 60.0
"""Maximum time that a reply can ask to wait with Retry-After, in seconds."""
PASSING = (StoreUnavailable, OutcomeUnknown, TooManyRequests)
"""Errors after which the same call may succeed."""

_UNREADABLE = (
    msgspec.MsgspecError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    RecursionError,
)
"""Errors of reading a reply that has another form, such as one of another program."""

Result = TypeVar("Result")

_encode = msgspec.json.Encoder().encode
_log = logging.getLogger("headway.client")


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpCall:
    """One call. Every call is idempotent and may be repeated.

    Attributes:
        path: path below the server's address, quoted.
        body: sent as JSON; None for no body.
        waits_s: how long the server may take beyond the timeout, for a long poll.
        patience_s: how long it is retried while the server is unavailable or returns 429.
    """

    method: Method
    path: str
    body: object = None
    params: Params = ()
    headers: tuple[tuple[str, str], ...] = ()
    waits_s: float = 0.0
    patience_s: float = 0.0

    @property
    def what(self) -> str:
        """The method and path, for messages."""
        return f"{self.method} {self.path[:120]}"

    def at(self, cursor: str) -> HttpCall:
        """Return the same call for the page at a cursor."""
        return replace(self, params=(*self.params, ("cursor", cursor)))

    @property
    def writes(self) -> bool:
        """Whether it may write something."""
        return self.method != "GET"


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpReply:
    """The successful response to a call.

    Attributes:
        asked_at: when the call was sent, in seconds on this machine's monotonic clock.
    """

    call: HttpCall
    body: bytes
    asked_at: float = field(default=0.0)

    def read(self, read: Callable[[Any], Result]) -> Result:
        """Decode the body, and return what `read` makes of its JSON.

        Raises:
            StoreUnavailable: it is not what a Headway server replies to this call; or
                OutcomeUnknown: the same, and the call may have written something.
        """
        try:
            return read(_decode(self.body) if self.body else None)
        except StoreUnavailable as error:
            message = f"{self.call.what}: {error.message}"
        except _UNREADABLE as error:
            message = f"{self.call.what}: the reply cannot be read: {error or type(error).__name__}"
        kind = OutcomeUnknown if self.call.writes else StoreUnavailable
        raise kind(message[:400], hint="is this a Headway server of the same version?")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Refusal:
    error: HeadwayError
    after_s: float = 0.0


class HttpCalls:
    """Makes calls to one server; use it in one event loop only."""

    def __init__(self, address: ServerAddress, *, timeout_s: float, timing: Timing) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._timing = timing
        self._transport: HttpTransport | None = None
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)
        # Jitter must differ between programs that lost their connection at the same time.
        self._seed = uuid4().hex
        self._drawn = 0

    async def ask(self, call: HttpCall) -> HttpReply:
        """Make a call, and retry it while that may help.

        Raises:
            HeadwayError: the server refused the call, with its own message.
            StoreUnavailable: it cannot be reached, and nothing was written.
            OutcomeUnknown: there was no reply, and something may have been written.
        """
        end = self._timing.monotonic() + call.patience_s
        tries = 0
        unknown = False
        while True:
            answered = await self._try(call)
            if isinstance(answered, HttpReply):
                return answered
            error = answered.error
            unknown = unknown or isinstance(error, OutcomeUnknown)
            pause_s = max(answered.after_s, self._jittered(tries))
            if not isinstance(error, PASSING) or self._timing.monotonic() + pause_s > end:
                if unknown and isinstance(error, StoreUnavailable | TooManyRequests):
                    # An earlier attempt may have written something.
                    raise OutcomeUnknown(error.message, hint=error.hint)
                raise error
            _log.info("call failed call=%r error=%s retry_in=%.1fs", call.what, error, pause_s)
            await self._timing.pause(pause_s)
            tries += 1

    async def close(self) -> None:
        """Close all connections; a later call opens them again."""
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.close()

    async def _try(self, call: HttpCall) -> HttpReply | _Refusal:
        transport = self._opened()
        content = None if call.body is None else _encoded(call)
        request = HttpRequest(call.method, call.path, content, call.params, call.headers)
        limit_s = self._timeout_s + call.waits_s
        # A long poll waits for the server, and must not keep other calls from being made.
        turn = nullcontext() if call.waits_s else self._turns
        asked_at: float | None = None
        try:
            async with self._timing.limit(limit_s), turn:
                asked_at = self._timing.monotonic()
                answer = await transport.send(request, limit_s)
        except Unreachable as error:
            return _Refusal(error=self._unreachable(error))
        except (ReplyLost, TimeoutError) as error:
            if asked_at is None:
                return _Refusal(error=self._unreachable(error))
            return _Refusal(error=_reply_lost(call, error))
        if answer.status < 300:
            return HttpReply(call=call, body=answer.body, asked_at=asked_at)
        error = error_of(answer.status, answer.body, what=call.what, writes=call.writes)
        after_ms = read_retry_after(answer.retry_after, self._timing.wall_at()) or 0
        return _Refusal(error=error, after_s=min(after_ms / 1000, LONGEST_WAIT_S))

    def _opened(self) -> HttpTransport:
        if self._transport is None:
            try:
                # Imported lazily, so that only programs that call a server load the HTTP library.
                from headway.client.transport import Transport  # noqa: PLC0415
            except ImportError as error:
                message = f"the client needs a package that is not installed: {error.name}"
                raise StoreUnavailable(message, hint="pip install 'headway[client]'") from error
            self._transport = Transport(self._address)
        return self._transport

    def _unreachable(self, error: Exception) -> StoreUnavailable:
        message = (
            f"the server {self._address.url} cannot be reached: {str(error) or 'no connection'}"
        )
        return StoreUnavailable(message, hint="is `headway serve` running there?")

    def _jittered(self, tries: int) -> float:
        self._drawn += 1
        whole = min(FIRST_PAUSE_S * 2**tries, LONGEST_PAUSE_S)
        return whole * (0.5 + 0.5 * draw(f"{self._seed}:{self._drawn}"))


def _encoded(call: HttpCall) -> bytes:
    try:
        return _encode(call.body)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        message = f"{call.what}: its body cannot be encoded as JSON: {error}"
        raise InvalidValue(message[:400]) from None


def _reply_lost(call: HttpCall, error: Exception) -> HeadwayError:
    message = f"no reply to {call.what}: {str(error) or type(error).__name__}"
    if call.writes:
        return OutcomeUnknown(message, hint="repeating the call is safe")
    return StoreUnavailable(message)
