"""Calls: requests to a server over connections that are kept, repeated where that may help."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from uuid import uuid4

import msgspec

from headway.client.address import Address
from headway.client.exchange import AnswerLost, Carrier, Request, Unreachable
from headway.client.problems import error_of
from headway.core.draw import draw
from headway.core.errors import (
    HeadwayError,
    InvalidValue,
    OutcomeUnknown,
    StoreUnavailable,
    TooManyRequests,
)
from headway.runtime.timing import Timing

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Params = tuple[tuple[str, str], ...]

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
PASSING = (StoreUnavailable, OutcomeUnknown, TooManyRequests)
"""Errors after which the same call may succeed."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_log = logging.getLogger("headway.client")


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One call. All calls may be repeated, with the effect of one.

    Attributes:
        method: of HTTP.
        path: below the server's address, quoted.
        body: the JSON to send; None for none.
        params: of the query.
        headers: beside those of all calls.
        waits_s: how long the server may take its time beyond the timeout: a long poll.
        patience_s: for how long it is repeated while the server is away or asks for patience.
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
        """The call, for messages."""
        return f"{self.method} {self.path[:120]}"

    def at(self, cursor: str) -> Call:
        """The same call for the page that a cursor names."""
        return replace(self, params=(*self.params, ("cursor", cursor)))

    @property
    def writes(self) -> bool:
        """Whether it may write something."""
        return self.method != "GET"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """What a call was answered.

    Attributes:
        status: below 300.
        body: as it came.
        asked_at: when it was sent, in seconds on this machine's clock.
    """

    status: int
    body: bytes
    asked_at: float = field(default=0.0)

    @property
    def json(self) -> Any:  # noqa: ANN401  (whatever the server says)
        """The body, read.

        Raises:
            StoreUnavailable: it is no JSON; something else than a Headway server answered.
        """
        try:
            return _decode(self.body) if self.body else None
        except (msgspec.DecodeError, UnicodeDecodeError):
            message = "the server's answer is no JSON"
            raise StoreUnavailable(message, hint="is it a Headway server?") from None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Refusal:
    error: HeadwayError
    after_s: float = 0.0


class Calls:
    """Calls one server; to be used in one event loop."""

    def __init__(self, address: Address, *, timeout_s: float, timing: Timing) -> None:
        """Makes it; nothing is opened before the first call.

        Args:
            address: of the server.
            timeout_s: how long one try of a call may take.
            timing: for limits and pauses.
        """
        self._address = address
        self._timeout_s = timeout_s
        self._timing = timing
        self._carrier: Carrier | None = None
        # Pauses of programs that lost the same server must differ.
        self._seed = uuid4().hex
        self._drawn = 0

    async def ask(self, call: Call) -> Reply:
        """Makes a call, and makes it again while that may help.

        Args:
            call: what to ask.

        Returns:
            The answer.

        Raises:
            HeadwayError: the server refuses, in its own words; or
                StoreUnavailable: it cannot be reached, nothing was written; or
                OutcomeUnknown: no answer came, it may have been written.
        """
        end = self._timing.monotonic() + call.patience_s
        tries = 0
        unknown = False
        while True:
            answered = await self._try(call)
            if isinstance(answered, Reply):
                return answered
            error = answered.error
            unknown = unknown or isinstance(error, OutcomeUnknown)
            pause_s = max(answered.after_s, self._jittered(tries))
            if not isinstance(error, PASSING) or self._timing.monotonic() + pause_s > end:
                shown: HeadwayError = _as_seen(error, unknown=unknown)
                raise shown
            _log.info("%s: %s; again in %.1f s", call.what, error, pause_s)
            await self._timing.pause(pause_s)
            tries += 1

    async def close(self) -> None:
        """Closes all connections; a later call opens them again."""
        carrier, self._carrier = self._carrier, None
        if carrier is not None:
            await carrier.close()

    async def _try(self, call: Call) -> Reply | _Refusal:
        """Makes a call once."""
        carrier = self._opened()
        content = None if call.body is None else _encoded(call)
        request = Request(call.method, call.path, content, call.params, call.headers)
        limit_s = self._timeout_s + call.waits_s
        asked_at = self._timing.monotonic()
        try:
            async with self._timing.limit(limit_s):
                answer = await carrier.send(request, limit_s)
        except Unreachable as error:
            return _Refusal(error=self._unreachable(error))
        except (AnswerLost, TimeoutError) as error:
            return _Refusal(error=_lost(call, error))
        if answer.status < 300:
            return Reply(status=answer.status, body=answer.body, asked_at=asked_at)
        error = error_of(answer.status, answer.body, what=call.what, writes=call.writes)
        return _Refusal(error=error, after_s=_seconds(answer.retry_after))

    def _opened(self) -> Carrier:
        if self._carrier is None:
            try:
                # Not before it is needed: a program that calls no server loads no HTTP.
                from headway.client.transport import Transport  # noqa: PLC0415
            except ImportError as error:
                message = f"the client needs a package that is not installed: {error.name}"
                raise StoreUnavailable(message, hint="pip install 'headway[client]'") from error
            self._carrier = Transport(self._address)
        return self._carrier

    def _unreachable(self, error: Exception) -> StoreUnavailable:
        message = f"the server {self._address.url} cannot be reached: {error or 'no connection'}"
        return StoreUnavailable(message, hint="is `headway serve` running there?")

    def _jittered(self, tries: int) -> float:
        self._drawn += 1
        whole = min(FIRST_PAUSE_S * 2**tries, LONGEST_PAUSE_S)
        return whole * (0.5 + 0.5 * draw(f"{self._seed}:{self._drawn}"))


def _encoded(call: Call) -> bytes:
    try:
        return _encode(call.body)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        message = f"{call.what}: its body is nothing for JSON: {error}"
        raise InvalidValue(message[:400]) from None


def _lost(call: Call, error: Exception) -> HeadwayError:
    told = str(error) or type(error).__name__
    if call.writes:
        message = f"no answer to {call.what}: {told}"
        return OutcomeUnknown(message, hint="repeating the call is safe")
    message = f"no answer to {call.what}: {told}"
    return StoreUnavailable(message)


def _as_seen(error: HeadwayError, *, unknown: bool) -> HeadwayError:
    """The error of the last try, unless an earlier one may have written something."""
    if unknown and isinstance(error, StoreUnavailable | TooManyRequests):
        return OutcomeUnknown(error.message, hint=error.hint)
    return error


def _seconds(said: str) -> float:
    """What Retry-After says, if it says seconds; not more than a minute is believed."""
    return min(float(said), 60.0) if said.isascii() and said.isdigit() and len(said) < 9 else 0.0
