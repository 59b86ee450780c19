"""The reporter: posts signed results to addresses that callers name.

Source: the Standard Webhooks specification, "Webhook payload", "Signature scheme" and "Verifying
signatures".
"""

from __future__ import annotations

import asyncio
import hmac
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

import httpcore

from headway.core.duration import read_retry_after
from headway.core.errors import InvalidValue, ProviderError, ProviderRefused, ProviderUnsure
from headway.runtime.answers import Dead, Retry
from headway.runtime.timing import Timing
from headway.server.hooks.providers import SHORTEST_SECRET
from headway.server.hooks.request import strict_base64
from headway.systems.last_moment import last_moment
from headway.systems.webhooks.pinned import PinnedNetwork, PrivateAddress, Resolve, resolve

PREFIX = "whsec_"


def read_keys(where: str, texts: Sequence[str]) -> tuple[bytes, ...]:
    """Read keys.

    Args:
        where: they stand in the settings, for the message.
        texts: each `whsec_` and base64 of 24 bytes or more.

    Returns:
        The secrets, in this order.

    Raises:
        InvalidValue: one is unusable; the message never contains it.
    """
    keys: list[bytes] = []
    for number, text in enumerate(texts, start=1):
        key = strict_base64(text.removeprefix(PREFIX))
        if key is None or len(key) < SHORTEST_SECRET:
            message = f"{where}: key {number} is no secret of {SHORTEST_SECRET} bytes in base64"
            raise InvalidValue(message, hint="whsec_ and the output of: openssl rand -base64 32")
        keys.append(key)
    return tuple(keys)


def sign(keys: Sequence[bytes], event: str, at_s: int, body: bytes) -> Mapping[str, str]:
    """The headers of a webhook.

    Args:
        keys: each signs, so that a receiver may change to a new one at any moment.
        event: the same however often it is sent.
        at_s: when it is sent, in seconds UTC.
    """
    signed = f"{event}.{at_s}.".encode() + body
    signatures = (b64encode(hmac.digest(key, signed, sha256)).decode() for key in keys)
    return {
        "webhook-id": event,
        "webhook-timestamp": str(at_s),
        "webhook-signature": " ".join(f"v1,{one}" for one in signatures),
    }


LIMIT_S = 10.0
"""For a whole report: resolving, connecting, sending, and the head of the reply."""
MOST_AT_ONCE = 50
LONGEST_URL = 2_048
GONE = 410
"""The receiver wants no more of it.

Source: the Standard Webhooks specification, "Operational considerations".
"""


class Posted(NamedTuple):
    """The head of a receiver's reply.

    Attributes:
        status: of HTTP.
        retry_after_ms: when it is worth posting again, if the receiver says so.
    """

    status: int
    retry_after_ms: int | None


class Reporter:
    """Posts signed webhooks; it follows no redirect, and reads no reply beyond its head."""

    def __init__(
        self,
        keys: Sequence[str],
        *,
        where: str,
        what: str,
        private: bool,
        timing: Timing,
        resolve: Resolve = resolve,
    ) -> None:
        """Connect nothing yet.

        Args:
            keys: `whsec_…`; each signs. Without any, nothing can be reported.
            where: they stand in the settings, such as "calls.reporting_keys".
            what: callers name an address in, such as "reporting_webhook_url".
            private: whether addresses that are not on the open internet may be reported to.
            timing: for the moment in the signature, and the limit.

        Raises:
            InvalidValue: a key is unusable.
        """
        self._where, self._what = where, what
        self._keys = read_keys(where, keys)
        self._timing = timing
        network = PinnedNetwork(private=private, resolve=resolve)
        self._pool = httpcore.AsyncConnectionPool(
            max_connections=MOST_AT_ONCE,
            # None is kept: what was checked may not hold for what is sent a minute later.
            max_keepalive_connections=0,
            network_backend=network,
        )
        self._places = asyncio.Semaphore(MOST_AT_ONCE)

    def check(self, url: str) -> str:
        """Accept an address to which a result can be reported; no request is sent to it.

        Raises:
            InvalidValue: it cannot be reported to, or nothing signs reports.
        """
        if not self._keys:
            message = f"{self._what}: this server signs no reports"
            raise InvalidValue(message, hint=f'set {self._where} = ["whsec_…"]')
        _read(self._what, url)
        return url

    async def report(self, url: str, event: str, body: bytes) -> None:
        """Post a result.

        Args:
            url: as the lead was given it.
            event: the id of the webhook; the same for each try.
            body: JSON.

        Raises:
            Retry: it was not taken, or it is not known; trying again is safe.
            Dead: it cannot be taken, or is not wanted.
        """
        try:
            status = (await self.post(url, event, body)).status
        except InvalidValue as error:
            raise Dead(error.message) from error
        except PrivateAddress as error:
            message = f"results are reported to no private address: {error}"
            raise Dead(message) from error
        except ProviderError as error:
            raise Retry(error.message) from error
        if status == GONE:
            message = "the webhook answered 410: it wants no more"
            raise Dead(message)
        if not 200 <= status < 300:
            message = f"the webhook answered {status}"
            raise Retry(message)

    async def post(self, url: str, event: str, body: bytes) -> Posted:
        """Post a webhook, once.

        Args:
            event: the id of the webhook; the same for each try.
            body: JSON.

        Returns:
            The receiver's reply, of whichever status.

        Raises:
            InvalidValue: it is not a URL that can be posted to, or nothing signs; nothing was sent.
            PrivateAddress: the host is not on the open internet; nothing was sent.
            ProviderRefused: the receiver cannot be reached; nothing was sent.
            ProviderUnsure: it was sent, or part of it, and there is no reply.
        """
        parts = _read(self._what, self.check(url))
        headers = {
            "host": parts.netloc,
            "content-type": "application/json",
            "content-length": str(len(body)),
            "user-agent": "headway",
            **sign(self._keys, event, self._timing.wall_at() // 1000, body),
        }
        begun = False

        async def watch(step: str, _: object) -> None:
            nonlocal begun
            if not begun and step.endswith("send_request_headers.started"):
                await last_moment()
                begun = True

        try:
            async with (
                self._places,
                self._timing.limit(LIMIT_S),
                self._pool.stream(
                    "POST",
                    url,
                    headers=list(headers.items()),
                    content=body,
                    extensions={"trace": watch},
                ) as reply,
            ):
                return Posted(reply.status, self._retry_after(reply))
        except (OSError, httpcore.NetworkError, httpcore.TimeoutException, TimeoutError) as error:
            message = f"the webhook does not answer: {type(error).__name__}"
            failed = error
        except httpcore.ProtocolError as error:
            message = "the webhook does not speak HTTP"
            failed = error
        if begun:
            raise ProviderUnsure(message) from failed
        raise ProviderRefused(message, concerns="provider") from failed

    async def close(self) -> None:
        """End all connections."""
        await self._pool.aclose()

    def _retry_after(self, reply: httpcore.Response) -> int | None:
        headers = {name.lower(): value for name, value in reply.headers}
        text = headers.get(b"retry-after", b"").decode("latin-1")
        return read_retry_after(text, self._timing.wall_at())


def _read(what: str, url: str) -> SplitResult:
    """Take an address apart.

    Raises:
        InvalidValue: it is none that can be posted to.
    """
    hint = "https://host/path, without a user or a fragment"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        message = f"{what} is not a URL"
        raise InvalidValue(message, hint=hint) from None
    fault = ""
    if parts.scheme not in {"https", "http"}:
        fault = "is no https:// or http:// URL"
    elif not parts.hostname or port == 0:
        fault = "names no host"
    elif "@" in parts.netloc or parts.fragment:
        fault = "has a user or a fragment"
    elif len(url) > LONGEST_URL or not url.isascii() or not url.isprintable() or " " in url:
        fault = f"is longer than {LONGEST_URL} characters, or has some that no URL has"
    if fault:
        message = f"{what} {fault}"
        raise InvalidValue(message, hint=hint)
    return parts
