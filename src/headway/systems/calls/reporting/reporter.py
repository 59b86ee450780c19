"""The reporter: tells callers what became of their leads, each by its own webhook."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from urllib.parse import SplitResult, urlsplit

import httpcore

from headway.core.errors import InvalidValue
from headway.runtime.answers import Dead, Retry
from headway.runtime.timing import Timing
from headway.systems.calls.reporting.pinned import PinnedNetwork, PrivateAddress, Resolve, resolve
from headway.systems.calls.reporting.signing import WHERE, read_keys, sign

LIMIT_S = 10.0
"""For a whole report: resolving, connecting, sending, and the head of the reply."""
MOST_AT_ONCE = 50
LONGEST_URL = 2_048
GONE = 410
"""The receiver wants no more of it.

Source: the Standard Webhooks specification, "Operational considerations".
"""


class Reporter:
    """Posts signed results; it follows no redirect, and reads no reply beyond its head."""

    def __init__(
        self,
        keys: Sequence[str],
        *,
        private: bool,
        timing: Timing,
        resolve: Resolve = resolve,
    ) -> None:
        """Connects nothing yet.

        Args:
            keys: `whsec_…`; each signs. Without any, nothing can be reported.
            private: whether addresses that are not on the open internet may be reported to.
            timing: for the moment in the signature, and the limit.
            resolve: finds addresses.

        Raises:
            InvalidValue: a key is unusable.
        """
        self._keys = read_keys(keys)
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
        """Lets an address pass to which a result can be reported; nothing is asked of it.

        Raises:
            InvalidValue: it cannot be reported to, or nothing signs reports.
        """
        if not self._keys:
            message = "reporting_webhook_url: this server signs no reports"
            raise InvalidValue(message, hint=f'set {WHERE} = ["whsec_…"]')
        _read(url)
        return url

    async def report(self, url: str, event: str, body: bytes) -> None:
        """Posts a result.

        Args:
            url: as the lead was given it.
            event: the id of the webhook; the same for each try.
            body: JSON.

        Raises:
            Retry: it was not taken, or it is not known; trying again is safe.
            Dead: it cannot be taken, or is not wanted.
        """
        try:
            parts = _read(self.check(url))
        except InvalidValue as error:
            raise Dead(error.message) from error
        headers = {
            "host": parts.netloc,
            "content-type": "application/json",
            "content-length": str(len(body)),
            "user-agent": "headway",
            **sign(self._keys, event, self._timing.wall_at() // 1000, body),
        }
        try:
            async with self._places, self._timing.limit(LIMIT_S):
                status = await self._post(url, headers, body)
        except PrivateAddress as error:
            message = f"results are reported to no private address: {error}"
            raise Dead(message) from error
        except (OSError, httpcore.NetworkError, httpcore.TimeoutException, TimeoutError) as error:
            message = f"the webhook does not answer: {type(error).__name__}"
            raise Retry(message) from error
        except httpcore.ProtocolError as error:
            message = "the webhook does not speak HTTP"
            raise Retry(message) from error
        if status == GONE:
            message = "the webhook answered 410: it wants no more"
            raise Dead(message)
        if not 200 <= status < 300:
            message = f"the webhook answered {status}"
            raise Retry(message)

    async def open(self) -> None:
        """Nothing: each report connects by itself."""

    async def close(self) -> None:
        """Ends all connections."""
        await self._pool.aclose()

    async def _post(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        async with self._pool.stream(
            "POST", url, headers=list(headers.items()), content=body
        ) as reply:
            return reply.status


def _read(url: str) -> SplitResult:
    """Takes an address apart.

    Raises:
        InvalidValue: it is none that can be posted to.
    """
    hint = "https://host/path, without a user or a fragment"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        message = "reporting_webhook_url is no URL"
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
        message = f"reporting_webhook_url {fault}"
        raise InvalidValue(message, hint=hint)
    return parts
