"""A carrier that speaks Twilio's API, on a free port of this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from headway.carrier.network import PhoneNetwork
from headway.carrier.script import Person
from headway.carrier.twilio_requests import CarrierSettings
from headway.carrier.twilio_server import TwilioCarrier
from headway.runtime.settings_table import read_table
from headway.runtime.timing import REAL, Timing
from headway.server.listener import ListenAddress, Listener

LIMIT_S = 120
"""How long a test waits for an event before it fails."""

Found = Any


@dataclass(frozen=True, kw_only=True)
class CarrierRig:
    """A carrier that runs in this process.

    Attributes:
        url: URL where it listens.
        carrier: the running carrier.
        http: a client for it.
    """

    url: str
    carrier: TwilioCarrier
    http: httpx.AsyncClient

    @property
    def network(self) -> PhoneNetwork:
        return self.carrier.network

    @property
    def account_sid(self) -> str:
        return self.carrier.settings.account

    @property
    def auth_token(self) -> str:
        return self.carrier.settings.token

    def settings(self, **more: object) -> dict[str, object]:
        """Return the table [telephony.twilio] that uses it."""
        told = {"account_sid": self.account_sid, "auth_token": self.auth_token}
        return {**told, "base_url": self.url, **more}

    def person(self, phone: str, *answers: str, **more: Any) -> None:
        """Set the behaviour of the person at a number; see `Person`."""
        self.network.set_person(phone, read_table("person", Person, {"answers": answers, **more}))

    async def until(self, fits: Callable[[PhoneNetwork], Found], what: str = "") -> Found:
        """Repeat a query of the network until it finds something; return what it finds."""
        try:
            async with asyncio.timeout(LIMIT_S):
                while not (found := fits(self.network)):
                    await REAL.pause(0.002)
                return found
        except TimeoutError:
            calls = [(one.plan.to, one.status) for one in self.network.ledger.calls.values()]
            message = f"never {what}: {calls}, {self.network.ledger.posts}"
            raise AssertionError(message) from None


@asynccontextmanager
async def carrying(*, timing: Timing = REAL, **settings: Any) -> AsyncGenerator[CarrierRig]:
    """Run a carrier on a free port until the block exits.

    By default each call is answered, and a second takes a millisecond.

    Args:
        timing: real time, except in tests of the network itself.
        settings: see `CarrierSettings`.
    """
    chosen: Mapping[str, object] = {"speed": 1_000, **_sure(settings), **settings}
    carrier = TwilioCarrier(read_table("carrier", CarrierSettings, chosen), timing=timing)
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
