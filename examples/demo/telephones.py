"""The telephones of the demo: a carrier with Twilio's API and simulated people."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from headway.carrier.ledger import CarrierLedger
from headway.carrier.twilio_requests import CarrierSettings
from headway.carrier.twilio_server import TwilioCarrier
from headway.runtime.settings_table import read_table
from headway.server.listener import ListenAddress, Listener

LOOPBACK = "127.0.0.1"
WORLD = {
    "speed": 10,
    "answer": 0.58,
    "busy": 0.16,
    "no_answer": 0.21,
    "failed": 0.05,
    "ring": "3s,18s",
    "talk": "10s,50s",
    "think": "5s,40s",
    "post_lost": 0.04,
    "post_late": 0.08,
    "post_twice": 0.06,
    "late": "10s,60s",
}
"""Settings of the simulated carrier; one of its minutes passes in six seconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Telephones:
    """A telephone network.

    Attributes:
        url: URL of its API.
        carrier: The running carrier.
    """

    url: str
    carrier: TwilioCarrier

    @property
    def ledger(self) -> CarrierLedger:
        """Every call and message, and the result of each webhook."""
        return self.carrier.network.ledger

    @property
    def settings(self) -> dict[str, object]:
        """The table [telephony] for this network."""
        settings = self.carrier.settings
        account = {"account_sid": settings.account, "auth_token": settings.token}
        return {"twilio": {**account, "base_url": self.url}}


@asynccontextmanager
async def telephones(seed: int) -> AsyncGenerator[Telephones]:
    """Run a telephone network on a free loopback port until the block ends."""
    carrier = TwilioCarrier(read_table("carrier", CarrierSettings, {**WORLD, "seed": seed}))
    listener = Listener(carrier.app, ListenAddress(host=LOOPBACK, port=0))
    running = asyncio.create_task(listener.run())
    try:
        await listener.answers()
        yield Telephones(url=listener.url, carrier=carrier)
    finally:
        await carrier.close()
        listener.stop()
        await running
