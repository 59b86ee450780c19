"""A carrier that speaks Twilio's API, on a free port of this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from headway.carrier.script import Person
from headway.carrier.twilio_requests import CarrierSettings
from headway.carrier.twilio_server import Carrier
from headway.carrier.world import World
from headway.runtime.settings_table import read_table
from headway.runtime.timing import REAL, Timing
from headway.server.listener import ListenAddress, Listener

LIMIT_S = 120
"""How long a test waits for what must come before it fails."""

Found = Any


@dataclass(frozen=True, kw_only=True)
class CarrierRig:
    """A carrier that runs in this process.

    Attributes:
        url: where it listens.
        carrier: what runs.
        http: speaks to it.
    """

    url: str
    carrier: Carrier
    http: httpx.AsyncClient

    @property
    def world(self) -> World:
        return self.carrier.world

    @property
    def account_sid(self) -> str:
        return self.carrier.settings.account

    @property
    def auth_token(self) -> str:
        return self.carrier.settings.token

    def settings(self, **more: object) -> dict[str, object]:
        """The table [telephony.twilio] that uses it."""
        told = {"account_sid": self.account_sid, "auth_token": self.auth_token}
        return {**told, "base_url": self.url, **more}

    def person(self, phone: str, *answers: str, **more: Any) -> None:
        """Says what the person at a number does; see `Person`."""
        self.world.set_person(phone, read_table("person", Person, {"answers": answers, **more}))

    async def until(self, fits: Callable[[World], Found], what: str = "") -> Found:
        """What a look at the world finds, as soon as it finds something."""
        try:
            async with asyncio.timeout(LIMIT_S):
                while not (found := fits(self.world)):
                    await REAL.pause(0.002)
                return found
        except TimeoutError:
            calls = [(one.plan.to, one.status) for one in self.world.ledger.calls.values()]
            message = f"never {what}: {calls}, {self.world.ledger.posts}"
            raise AssertionError(message) from None


@asynccontextmanager
async def carrying(*, timing: Timing = REAL, **settings: Any) -> AsyncGenerator[CarrierRig]:
    """A carrier on a free port, until the block ends.

    Everybody answers, and a second takes a millisecond, unless it is said otherwise.

    Args:
        timing: real time, but in tests of the world itself.
        settings: see `CarrierSettings`.
    """
    chosen: Mapping[str, object] = {"speed": 1_000, **_sure(settings), **settings}
    carrier = Carrier(read_table("carrier", CarrierSettings, chosen), timing=timing)
    listener = Listener(carrier.app, ListenAddress(port=0))
    running = asyncio.create_task(listener.run())
    await listener.answers()
    try:
        async with httpx.AsyncClient(base_url=listener.url, timeout=LIMIT_S) as http:
            yield CarrierRig(url=listener.url, carrier=carrier, http=http)
    finally:
        listener.stop(now=True)
        await running
        await carrier.close()


def _sure(settings: Iterable[str]) -> dict[str, object]:
    ends = {"answer", "busy", "no_answer", "failed"}
    return {} if ends & set(settings) else {"answer": 1.0}
