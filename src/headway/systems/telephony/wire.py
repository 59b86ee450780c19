"""The connections to one provider: its replies, and whether a request can have reached it.

Official clients retry, follow redirects or raise the same error for "never asked" and "no answer".
All of them send through here instead: a request is sent once, and the two cases are distinguished.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

import httpx

from headway.core.duration import read_retry_after
from headway.core.errors import ProviderError, ProviderRefused, ProviderUnsure
from headway.runtime.timing import REAL, Timing
from headway.systems.last_moment import FirstByte, Withdrawn

UNSURE = frozenset({408, 409, 425})
"""Statuses of the caller's side that do not say that nothing was begun."""

MAX_REPLY = 4_000_000
"""Bytes of a reply."""

AT_ONCE = 50
"""Requests that are under way at once; others wait their turn, and their time begins with it.

Hundreds of handshakes at once, on one event loop, would all be late, and be taken for a provider
that cannot be reached.
"""
SOON_MS = 1_000
KEPT = 20
"""Connections that are kept for the next requests."""
KEPT_S = 5
"""How long a connection without requests may be used again."""
LOOK_IT_UP = "look it up; do not send it again"
"""The hint of an error after which a request may have been carried out."""
_SAID = 300

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """What a provider's own words for a refusal say.

    Attributes:
        concerns: as in `ProviderRefused`.
        code: the provider's own; empty if it gave none.
    """

    concerns: str
    code: str = ""
    text: str = ""


class Wire:
    """Sends requests to one provider, each once.

    Attributes:
        answers_ms: within which a request that is sent has an answer or has failed, its turn
            included.
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
        """Connect nothing yet.

        Args:
            read_refusal: what a reply of 4xx says, from its status and body.
            timeout_ms: how long after its turn a request may take until a whole reply is there.
            not_done: statuses of 5xx with which this provider says that nothing was begun.
        """
        self.answers_ms = 2 * timeout_ms
        self._provider = provider
        self._read_refusal = read_refusal
        self._timeout_s = timeout_ms / 1000
        self._timing = timing
        self._not_done = frozenset(not_done)
        # A handshake that is cancelled from outside leaves its socket open: connecting and TLS end
        # by themselves before the whole time is over.
        timeout = httpx.Timeout(self._timeout_s, connect=self._timeout_s * 0.45)
        self._phases = timeout.as_dict()
        self._context = httpx.create_ssl_context()
        # A client for each connection: one client's pool looks at all its connections twice for
        # each request, at each of them for all the others.
        self._idle: list[httpx.AsyncClient] = []
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def send(self, request: httpx.Request, auth: httpx.Auth | None = None) -> httpx.Response:
        """Send a request, once.

        Args:
            request: with its whole body.
            auth: of the caller; None if the request holds it.

        Returns:
            A reply of 2xx, whole.

        Raises:
            ProviderRefused: not one byte of the request was sent, or the provider refused it.
                Also if its turn does not come within the time that a reply may take.
            ProviderUnsure: it was sent, or part of it, and no reply shows its outcome.
        """
        await self._turn()
        try:
            return await self._sent(request, auth)
        finally:
            self._turns.release()

    async def _turn(self) -> None:
        try:
            async with self._timing.limit(self._timeout_s):
                await self._turns.acquire()
        except TimeoutError:
            message = f"{self._provider} has not answered {AT_ONCE} requests before this one"
            hint = "nothing was sent; it can be asked again soon"
            raise ProviderRefused(
                message, hint=hint, concerns="provider", retry_after_ms=SOON_MS
            ) from None

    async def _sent(self, request: httpx.Request, auth: httpx.Auth | None) -> httpx.Response:
        first_byte = FirstByte()
        request.extensions |= {"trace": first_byte.trace, "timeout": self._phases}
        try:
            async with self._timing.limit(self._timeout_s):
                reply, body = await self._exchange(request, auth)
        except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, OSError) as error:
            why = f"{type(error).__name__}: {error}".strip(": ")[:_SAID]
            if first_byte.begun:
                message = f"{self._provider} was asked and did not answer: {why}"
                raise ProviderUnsure(message, hint=LOOK_IT_UP) from None
            message = f"{self._provider} cannot be reached: {why}"
            hint = "nothing was sent; check its base_url and the network"
            raise ProviderRefused(message, hint=hint, concerns="provider") from None
        if not reply.is_success:
            raise self._refused(reply, body)
        return httpx.Response(
            reply.status_code, headers=_plain(reply), content=body, request=request
        )

    async def close(self) -> None:
        """Close its connections."""
        idle, self._idle = self._idle, []
        for client in idle:
            await client.aclose()

    async def _exchange(
        self, request: httpx.Request, auth: httpx.Auth | None
    ) -> tuple[httpx.Response, bytes]:
        # The last one used: so the others expire, and few are left after a quiet hour.
        client = self._idle.pop() if self._idle else self._connected()
        keep = False
        try:
            reply = await client.send(request, auth=auth, stream=True, follow_redirects=False)
            try:
                body = await read_bounded(reply, MAX_REPLY)
                keep = len(self._idle) < KEPT
            finally:
                await reply.aclose()
        finally:
            if keep:
                self._idle.append(client)
            else:
                await client.aclose()
        return reply, body

    def _connected(self) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=1, keepalive_expiry=KEPT_S)
        return httpx.AsyncClient(verify=self._context, limits=limits)

    def _refused(self, reply: httpx.Response, body: bytes) -> ProviderRefused | ProviderUnsure:
        status = reply.status_code
        away = status in self._not_done
        if not away and (not reply.is_client_error or status in UNSURE):
            message = f"{self._provider} answered {status}, which does not say whether it was done"
            return ProviderUnsure(message, hint=LOOK_IT_UP)
        said = self._read_refusal(status, body)
        number = f" {said.code}" if said.code and said.code != str(status) else ""
        message = f"{self._provider} refused with {status}{number}: {said.text[:_SAID]}"
        return ProviderRefused(
            message.rstrip(": "),
            concerns="provider" if away or status == 429 else said.concerns,
            retry_after_ms=read_retry_after(
                reply.headers.get("retry-after", ""), self._timing.wall_at()
            ),
            provider_code=said.code,
            limited=status == 429,
        )


async def read_bounded(reply: httpx.Response, most: int) -> bytes:
    """Read the body of a reply.

    Args:
        most: bytes.

    Raises:
        DecodingError: it has more of them.
    """
    body = bytearray()
    async for part in reply.aiter_bytes():
        body += part
        if len(body) > most:
            message = f"the reply is longer than {most} bytes"
            raise httpx.DecodingError(message)
    return bytes(body)


async def understood(provider: str, asked: Awaitable[T]) -> T:
    """Return what an official client made of a reply.

    Raises:
        ProviderError: as the wire raised it.
        Withdrawn: the same.
        ProviderUnsure: there is a reply, but it is not understood; it may have been done.
    """
    try:
        return await asked
    except (ProviderError, Withdrawn):
        raise
    except Exception as error:  # (a client raises anything for a reply of another shape)
        message = f"{provider}'s reply is not understood: {type(error).__name__}"
        raise ProviderUnsure(message, hint=LOOK_IT_UP) from error


def _plain(reply: httpx.Response) -> list[tuple[str, str]]:
    """Return the headers of a reply whose body has been unpacked."""
    gone = {"content-encoding", "content-length", "transfer-encoding"}
    return [one for one in reply.headers.multi_items() if one[0].lower() not in gone]
