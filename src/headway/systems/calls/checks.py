"""Pre-checks, which run one after another before a lead is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never, cast

import httpx
import msgspec

from headway.runtime.timing import Timing
from headway.systems.calls.template import BlacklistBody, HttpCheckBody, Template, ValidityBody
from headway.systems.telephony.http import Connections, read_bounded
from headway.systems.telephony.phone import can_be_assigned


@dataclass(frozen=True, kw_only=True, slots=True)
class LeadToCheck:
    """A lead as it is posted to a check service.

    Attributes:
        phone: E.164.
    """

    lead_id: str
    phone: str
    tz: str
    reseller: str
    template: str
    payload: Any


class LeadRefused(Exception):
    """Raised by a check if the lead must not be called.

    Args:
        why: text for the lead's reason.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


MOST_BYTES = 65_536
"""Maximum size of a reply."""


_FAILURES = (
    httpx.HTTPError,
    httpx.InvalidURL,
    TimeoutError,
    msgspec.DecodeError,
    # From a reply that is not UTF-8, arrays nested too deep, and a port that is out of range.
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
    return "" if is_called else "calls to the phone's country are not allowed"


class _NoAnswer(Exception):
    """Raised if a try brought no usable reply."""


def _at(value: object, path: str) -> object:
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            message = f"the reply has no {path}"
            raise _NoAnswer(message)
        value = cast("Mapping[str, object]", value)[name]
    return value


class Checking:
    """Runs the checks of templates, over kept connections."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._connections = Connections()

    async def check(self, template: Template, lead: LeadToCheck) -> None:
        """Run all checks of a lead's template in their order.

        Raises:
            LeadRefused: a check refused the lead.
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
                raise LeadRefused(why)

    async def check_again(self, template: Template, lead: LeadToCheck) -> None:
        """Repeat the checks for a lead that holds a line, within `recheck_within`.

        Raises:
            LeadRefused: a check refused the lead; or they took too long, and one of them skips
                leads on failure.
        """
        try:
            async with self._timing.limit(template.recheck_within / 1000):
                await self.check(template, lead)
        except TimeoutError:
            if any(
                isinstance(one, HttpCheckBody) and one.on_failure == "skip"
                for one in template.checks
            ):
                why = f"the check did not finish within {template.recheck_within} ms"
                raise LeadRefused(why) from None

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()

    async def _refusal(self, check: HttpCheckBody, lead: LeadToCheck) -> str:
        """Query the service, with up to `tries` tries.

        Returns:
            Why the lead must not be called; empty if it may be called.
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
        return f"the check failed: {last}" if check.on_failure == "skip" else ""

    async def _ask(self, check: HttpCheckBody, lead: LeadToCheck) -> object:
        body = msgspec.json.encode(lead)
        headers = {"content-type": "application/json"}
        limit_s = check.timeout / 1000
        # As in `telephony.http`: a handshake that is cancelled from outside leaves its socket open.
        timeout = httpx.Timeout(limit_s, connect=limit_s * 0.45)
        try:
            # Limits the whole reply: a reply byte by byte never exceeds the client's own timeout.
            # Gates limit how many run at once; the target of a redirect is not authorised to
            # receive lead data.
            async with (
                self._timing.limit(limit_s),
                self._connections.take(httpx.URL(check.url)) as http,
                http.stream(
                    "POST",
                    check.url,
                    content=body,
                    headers=headers,
                    timeout=timeout,
                    follow_redirects=False,
                ) as reply,
            ):
                if not reply.is_success:
                    message = f"status {reply.status_code}"
                    raise _NoAnswer(message)
                return msgspec.json.decode(await read_bounded(reply, MOST_BYTES))
        except _FAILURES as error:
            # A timeout has no text of its own.
            message = f"{type(error).__name__}: {error}".strip(": ")[:120]
            raise _NoAnswer(message) from error
