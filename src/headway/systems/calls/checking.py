"""All checks of a template, one after another."""

from __future__ import annotations

from typing import assert_never

import httpx

from headway.runtime.timing import Timing
from headway.systems.calls.checks.blacklist import Blacklist
from headway.systems.calls.checks.check import Check, Checked, Refused
from headway.systems.calls.checks.http import HttpCheck
from headway.systems.calls.checks.options import (
    BlacklistOptions,
    CheckOptions,
    HttpOptions,
    ValidityOptions,
)
from headway.systems.calls.checks.validity import Validity
from headway.systems.calls.template import Template

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
