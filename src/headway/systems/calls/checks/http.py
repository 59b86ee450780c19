"""A service of the caller's that says whether a lead may be called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import httpx
import msgspec

from headway.runtime.timing import Timing
from headway.systems.calls.checks.check import Checked, Refused
from headway.systems.calls.checks.options import HttpOptions

MOST_BYTES = 65_536
"""Of an answer."""


_FAILURES = (
    httpx.HTTPError,
    httpx.InvalidURL,
    TimeoutError,
    msgspec.DecodeError,
    # Of bytes that are no text, of arrays within arrays, and of a port that there is not.
    ValueError,
    RecursionError,
    OverflowError,
)


class _NoAnswer(Exception):
    """A try brought nothing that can be read."""


class HttpCheck:
    """Asks by HTTP, a few times if it must."""

    def __init__(self, options: HttpOptions, client: httpx.AsyncClient, timing: Timing) -> None:
        self._options = options
        self._client = client
        self._timing = timing

    async def check(self, lead: Checked) -> None:
        """Lets a lead pass of which the service says so.

        Raises:
            Refused: it says otherwise, or says nothing and the template skips such leads.
        """
        options, last = self._options, ""
        for _ in range(options.tries):
            try:
                found = _at(await self._ask(lead), options.field)
            except _NoAnswer as failure:
                last = str(failure)
                continue
            if found != options.expected or type(found) is not type(options.expected):
                why = f"{options.field} is {found!r:.60}"
                raise Refused(why)
            return
        if options.on_failure == "skip":
            why = f"the check could not be made: {last}"
            raise Refused(why)

    async def _ask(self, lead: Checked) -> object:
        body = msgspec.json.encode(
            {
                "lead_id": lead.id,
                "phone": lead.phone,
                "tz": lead.tz,
                "reseller": lead.reseller,
                "template": lead.template,
                "payload": lead.payload,
            }
        )
        headers = {"content-type": "application/json"}
        limit_s = self._options.timeout_ms / 1000
        # As of `telephony.wire`: a handshake that is cancelled from outside leaves its socket open.
        timeout = httpx.Timeout(limit_s, connect=limit_s * 0.45)
        try:
            # Of the whole answer: one that comes byte by byte is never late by itself.
            async with (
                self._timing.limit(limit_s),
                self._client.stream(
                    "POST", self._options.url, content=body, headers=headers, timeout=timeout
                ) as reply,
            ):
                if not reply.is_success:
                    message = f"status {reply.status_code}"
                    raise _NoAnswer(message)
                return msgspec.json.decode(await _read(reply))
        except _FAILURES as error:
            message = f"{type(error).__name__}: {error}"[:120]
            raise _NoAnswer(message) from error


async def _read(reply: httpx.Response) -> bytes:
    read = bytearray()
    async for part in reply.aiter_bytes():
        read += part
        if len(read) > MOST_BYTES:
            message = f"the answer is longer than {MOST_BYTES} bytes"
            raise _NoAnswer(message)
    return bytes(read)


def _at(value: object, path: str) -> object:
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            message = f"the answer has no {path}"
            raise _NoAnswer(message)
        value = cast("Mapping[str, object]", value)[name]
    return value
