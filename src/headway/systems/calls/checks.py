"""Pre-checks: what is asked before a lead may be called, one check after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never, cast

import httpx
import msgspec

from headway.runtime.timing import Timing
from headway.systems.calls.template import BlacklistBody, HttpCheckBody, Template, ValidityBody
from headway.systems.telephony.phone import can_be_assigned
from headway.systems.telephony.wire import read_bounded


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """The lead that is checked, as it is posted to a service.

    Attributes:
        phone: E.164.
        template: by name.
        payload: what it carries; None for nothing.
    """

    lead_id: str
    phone: str
    tz: str
    reseller: str
    template: str
    payload: Any


class Refused(Exception):
    """Raised by a check: the lead must not be called.

    Args:
        why: free text; the lead's reason from then on.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


MOST_BYTES = 65_536
"""The largest answer that is read."""


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


def _is_listed(phone: str, listed: str) -> bool:
    return phone.startswith(listed[:-1]) if listed.endswith("*") else phone == listed


def _why_invalid(phone: str, countries: Sequence[str]) -> str:
    if not can_be_assigned(phone):
        return "the phone is not a number that can be assigned"
    is_called = not countries or phone.startswith(tuple(countries))
    return "" if is_called else "the phone's country is not called"


class _NoAnswer(Exception):
    """A try brought nothing that can be read."""


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
        """Accept a lead that all checks of its template accept.

        Raises:
            Refused: one does not.
        """
        for one in template.checks:
            match one:
                case BlacklistBody():
                    is_listed = any(_is_listed(lead.phone, each) for each in one.phones)
                    why = "the phone is on the blacklist" if is_listed else ""
                case ValidityBody():
                    why = _why_invalid(lead.phone, one.countries)
                case HttpCheckBody():
                    why = await self._refusal(one, lead)
                case _:
                    assert_never(one)
            if why:
                raise Refused(why)

    async def check_again(self, template: Template, lead: Checked) -> None:
        """As `check`, for a lead that holds a line meanwhile: within the template's bound.

        Raises:
            Refused: one does not; or they were not through in time, and one skips such leads.
        """
        try:
            async with self._timing.limit(template.recheck_within / 1000):
                await self.check(template, lead)
        except TimeoutError:
            if any(
                isinstance(one, HttpCheckBody) and one.on_failure == "skip"
                for one in template.checks
            ):
                why = f"the check was not through within {template.recheck_within} ms"
                raise Refused(why) from None

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _refusal(self, check: HttpCheckBody, lead: Checked) -> str:
        """Ask by HTTP, a few times if it must.

        Returns:
            Why the lead must not be called; empty if it may.
        """
        last = ""
        for _ in range(check.tries):
            try:
                found = _at(await self._ask(check, lead), check.field)
            except _NoAnswer as failure:
                last = str(failure)
                continue
            if found != check.expected or type(found) is not type(check.expected):
                return f"{check.field} is {found!r:.60}"
            return ""
        return f"the check could not be made: {last}" if check.on_failure == "skip" else ""

    async def _ask(self, check: HttpCheckBody, lead: Checked) -> object:
        body = msgspec.json.encode(lead)
        headers = {"content-type": "application/json"}
        limit_s = check.timeout / 1000
        # As of `telephony.wire`: a handshake that is cancelled from outside leaves its socket open.
        timeout = httpx.Timeout(limit_s, connect=limit_s * 0.45)
        try:
            # Of the whole answer: one that comes byte by byte is never late by itself.
            async with (
                self._timing.limit(limit_s),
                self._http().stream(
                    "POST", check.url, content=body, headers=headers, timeout=timeout
                ) as reply,
            ):
                if not reply.is_success:
                    message = f"status {reply.status_code}"
                    raise _NoAnswer(message)
                return msgspec.json.decode(await read_bounded(reply, MOST_BYTES))
        except _FAILURES as error:
            message = f"{type(error).__name__}: {error}"[:120]
            raise _NoAnswer(message) from error

    def _http(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = httpx.AsyncClient(
                # The target of a redirect is not authorised to receive lead data.
                follow_redirects=False,
                # Gates say how many run at once; who waits here for a connection would be late,
                # and be taken for a lead of which the service says nothing.
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=KEPT),
            )
        return self._client
