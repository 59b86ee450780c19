"""Pre-checks: what is asked before a lead may be called, one check after another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, assert_never, cast

import httpx
import msgspec

from headway.runtime.timing import Timing
from headway.systems.calls.template import (
    BlacklistOptions,
    CheckOptions,
    HttpOptions,
    Template,
    ValidityOptions,
)
from headway.systems.telephony.phone import can_be_assigned


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """The lead that is checked.

    Attributes:
        id: of the lead.
        phone: E.164.
        tz: its zone.
        reseller: whose it is.
        template: by name.
        payload: what it carries; None for nothing.
    """

    id: str
    phone: str
    tz: str
    reseller: str
    template: str
    payload: Any


class Refused(Exception):
    """Raised by a check: the lead must not be called.

    Args:
        why: for people; the lead's reason from then on.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Check(Protocol):
    """One check, with its template's options."""

    async def check(self, lead: Checked) -> None:
        """Lets a lead pass that may be called.

        Raises:
            Refused: it may not.
        """
        ...


class Blacklist:
    """Refuses phones that are listed, whole or by their beginning."""

    def __init__(self, options: BlacklistOptions) -> None:
        self._phones = frozenset(one for one in options.phones if not one.endswith("*"))
        self._starts = tuple(one[:-1] for one in options.phones if one.endswith("*"))

    async def check(self, lead: Checked) -> None:
        """Lets a phone pass that is not listed.

        Raises:
            Refused: it is.
        """
        if lead.phone in self._phones or lead.phone.startswith(self._starts):
            why = "the phone is on the blacklist"
            raise Refused(why)


class Validity:
    """Refuses numbers that cannot exist, and countries that are not called."""

    def __init__(self, options: ValidityOptions) -> None:
        self._countries = options.countries

    async def check(self, lead: Checked) -> None:
        """Lets a phone pass that can be somebody's, in a country that is called.

        Raises:
            Refused: it cannot, or the country is not.
        """
        if not can_be_assigned(lead.phone):
            why = "the phone is no number that can be assigned"
            raise Refused(why)
        if self._countries and not lead.phone.startswith(self._countries):
            why = "the phone's country is not called"
            raise Refused(why)


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


KEPT = 20
"""Connections that are kept for the next checks."""


class Checking:
    """Makes the checks of templates; keeps the connections that they need."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._client: httpx.AsyncClient | None = None

    async def check(self, template: Template, lead: Checked) -> None:
        """Lets a lead pass that all checks let pass.

        Raises:
            Refused: one does not.
        """
        for options in template.checks:
            await self._made(options).check(lead)

    async def check_again(self, template: Template, lead: Checked) -> None:
        """As `check`, for a lead that holds a line meanwhile: within the template's bound.

        Raises:
            Refused: one does not; or they were not through in time, and one skips such leads.
        """
        try:
            async with self._timing.limit(template.recheck_within_ms / 1000):
                await self.check(template, lead)
        except TimeoutError:
            if any(
                isinstance(one, HttpOptions) and one.on_failure == "skip" for one in template.checks
            ):
                why = f"the check was not through within {template.recheck_within_ms} ms"
                raise Refused(why) from None

    async def open(self) -> None:
        """Opens nothing before it is needed."""

    async def close(self) -> None:
        """Closes the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _made(self, options: CheckOptions) -> Check:
        match options:
            case BlacklistOptions():
                return Blacklist(options)
            case ValidityOptions():
                return Validity(options)
            case HttpOptions():
                return HttpCheck(options, self._http(), self._timing)
            case _:
                assert_never(options)

    def _http(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = httpx.AsyncClient(
                # Where a check would be sent on to, nobody has said that a lead may be told.
                follow_redirects=False,
                # Gates say how many run at once; who waits here for a connection would be late,
                # and be taken for a lead of which the service says nothing.
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=KEPT),
            )
        return self._client
