"""HTTP connections to one provider that send each request once and report whether it was sent.

Official clients retry, follow redirects, or raise the same error for "not sent" and "no reply".
They are made to send through this module instead, which distinguishes the two cases.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

import httpx

from headway.core.duration import read_retry_after
from headway.core.errors import ProviderError, ProviderRefused, ProviderUnsure
from headway.runtime.timing import REAL, Timing
from headway.systems.pre_send_check import PreSendTrace, Withdrawn

UNSURE = frozenset({408, 409, 425})
"""Statuses of 4xx after which the request may still have been carried out."""

MAX_REPLY = 4_000_000
"""Maximum size of a reply, in bytes."""

AT_ONCE = 50
"""Maximum number of concurrent requests; the timeout of a waiting request starts with its turn.

Hundreds of concurrent handshakes on one event loop would all time out, as if the provider were
unreachable.
"""
SOON_MS = 1_000
KEPT = 20
"""Maximum number of idle connections to keep."""
KEPT_S = 5
"""How long an idle connection may be reused."""
LOOK_IT_UP = "query its status; do not send it again"
"""The hint of an error after which the request may have been carried out."""
_MOST_TEXT = 300

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """A refusal, read from a provider's reply.

    Attributes:
        concerns: as in `ProviderRefused`.
        code: the provider's error code; empty if there is none.
    """

    concerns: str
    code: str = ""
    text: str = ""


class Connections:
    """HTTP connections, of which up to `KEPT` idle ones are kept; one client for each.

    The pool of a shared client examines all its connections at each request, and once more than its
    limit of idle connections are busy, it keeps none of those that become idle.
    """

    def __init__(self) -> None:
        self._context = httpx.create_ssl_context()
        self._idle: list[tuple[str, httpx.AsyncClient]] = []

    @asynccontextmanager
    async def take(self, url: httpx.URL) -> AsyncGenerator[httpx.AsyncClient]:
        """Yield a client for one request to a URL; after an error its connection is closed."""
        origin = f"{url.scheme}://{url.netloc.decode('ascii')}"
        # The most recent one, so that surplus connections expire.
        at = next(
            (at for at in reversed(range(len(self._idle))) if self._idle[at][0] == origin), -1
        )
        client = self._connected() if at < 0 else self._idle.pop(at)[1]
        try:
            yield client
        except BaseException:
            await client.aclose()
            raise
        self._idle.append((origin, client))
        if len(self._idle) > KEPT:
            await self._idle.pop(0)[1].aclose()

    async def close(self) -> None:
        """Close the idle connections."""
        idle, self._idle = self._idle, []
        for _, client in idle:
            await client.aclose()

    def _connected(self) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=1, keepalive_expiry=KEPT_S)
        return httpx.AsyncClient(verify=self._context, limits=limits)


class ProviderHttp:
    """Sends requests to one provider, each once.

    Attributes:
        answers_ms: maximum time until a request has a reply or has failed, including the wait for
            its turn.
    """

    def __init__(
        self,
        provider: str,
        read_refusal: Callable[[int, bytes], Refusal],
        *,
        timeout_ms: int,
        timing: Timing = REAL,
        not_done: Collection[int] = (),
    ) -> None:
        """Create it without connecting.

        Args:
            read_refusal: reads a reply of 4xx, given its status and body.
            timeout_ms: maximum time from a request's turn to its complete reply.
            not_done: statuses of 5xx after which this provider has definitely not acted.
        """
        self.answers_ms = 2 * timeout_ms
        self._provider = provider
        self._read_refusal = read_refusal
        self._timeout_s = timeout_ms / 1000
        self._timing = timing
        self._not_done = frozenset(not_done)
        # A handshake that is cancelled from outside leaves its socket open, so connecting and TLS
        # time out by themselves before the whole request does.
        timeout = httpx.Timeout(self._timeout_s, connect=self._timeout_s * 0.45)
        self._phases = timeout.as_dict()
        self._connections = Connections()
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def send(self, request: httpx.Request, auth: httpx.Auth | None = None) -> httpx.Response:
        """Send a request, once.

        Args:
            request: with its complete body.
            auth: credentials; None if the request contains them.

        Returns:
            A complete reply of 2xx.

        Raises:
            ProviderRefused: not one byte of the request was sent, also because its turn did not
                come within the timeout; or the provider refused it.
            ProviderUnsure: at least a part was sent, and no reply shows its outcome.
        """
        await self._acquire_turn()
        try:
            return await self._send_now(request, auth)
        finally:
            self._turns.release()

    async def _acquire_turn(self) -> None:
        try:
            async with self._timing.limit(self._timeout_s):
                await self._turns.acquire()
        except TimeoutError:
            message = f"{self._provider} has not replied to {AT_ONCE} earlier requests"
            hint = "nothing was sent; try again soon"
            raise ProviderRefused(
                message, hint=hint, concerns="provider", retry_after_ms=SOON_MS
            ) from None

    async def _send_now(self, request: httpx.Request, auth: httpx.Auth | None) -> httpx.Response:
        first_byte = PreSendTrace()
        request.extensions |= {"trace": first_byte.trace, "timeout": self._phases}
        try:
            async with self._timing.limit(self._timeout_s):
                reply, body = await self._exchange(request, auth)
        except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, OSError) as error:
            why = f"{type(error).__name__}: {error}".strip(": ")[:_MOST_TEXT]
            if first_byte.begun:
                message = f"{self._provider} did not reply: {why}"
                raise ProviderUnsure(message, hint=LOOK_IT_UP) from None
            message = f"{self._provider} cannot be reached: {why}"
            hint = "nothing was sent; check its base_url and the network"
            raise ProviderRefused(message, hint=hint, concerns="provider") from None
        if not reply.is_success:
            raise self._error_of(reply, body)
        return httpx.Response(
            reply.status_code, headers=_headers_of_decoded(reply), content=body, request=request
        )

    async def close(self) -> None:
        """Close the idle connections."""
        await self._connections.close()

    async def _exchange(
        self, request: httpx.Request, auth: httpx.Auth | None
    ) -> tuple[httpx.Response, bytes]:
        async with self._connections.take(request.url) as client:
            reply = await client.send(request, auth=auth, stream=True, follow_redirects=False)
            try:
                return reply, await read_bounded(reply, MAX_REPLY)
            finally:
                await reply.aclose()

    def _error_of(self, reply: httpx.Response, body: bytes) -> ProviderRefused | ProviderUnsure:
        status = reply.status_code
        not_acted = status in self._not_done
        if not not_acted and (not reply.is_client_error or status in UNSURE):
            message = f"{self._provider} replied with {status}: the outcome is unknown"
            return ProviderUnsure(message, hint=LOOK_IT_UP)
        refusal = self._read_refusal(status, body)
        number = f" {refusal.code}" if refusal.code and refusal.code != str(status) else ""
        message = f"{self._provider} refused with {status}{number}: {refusal.text[:_MOST_TEXT]}"
        return ProviderRefused(
            message.rstrip(": "),
            concerns="provider" if not_acted or status == 429 else refusal.concerns,
            retry_after_ms=read_retry_after(
                reply.headers.get("retry-after", ""), self._timing.wall_at()
            ),
            provider_code=refusal.code,
            limited=status == 429,
        )


async def read_bounded(reply: httpx.Response, most: int) -> bytes:
    """Read the body of a reply.

    Args:
        most: maximum size, in bytes.

    Raises:
        DecodingError: the body is larger.
    """
    body = bytearray()
    async for part in reply.aiter_bytes():
        body += part
        if len(body) > most:
            message = f"the reply is longer than {most} bytes"
            raise httpx.DecodingError(message)
    return bytes(body)


async def client_result(provider: str, asked: Awaitable[T]) -> T:
    """Return an official client's result.

    Raises:
        ProviderError: as raised by `ProviderHttp`.
        Withdrawn: as raised by `ProviderHttp`.
        ProviderUnsure: the client cannot read the reply; the request may have been carried out.
    """
    try:
        return await asked
    except (ProviderError, Withdrawn):
        raise
    except Exception as error:  # (clients raise any error for an unexpected reply)
        message = f"{provider}'s reply cannot be read: {type(error).__name__}"
        raise ProviderUnsure(message, hint=LOOK_IT_UP) from error


def _headers_of_decoded(reply: httpx.Response) -> list[tuple[str, str]]:
    """Return the headers without those that describe the encoded body."""
    gone = {"content-encoding", "content-length", "transfer-encoding"}
    return [one for one in reply.headers.multi_items() if one[0].lower() not in gone]
