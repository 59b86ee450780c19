"""The system `calls` with a source table: a real server and worker, and a Twilio-like carrier."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

import headway as hw
from headway.contract.definitions import Role
from headway.contract.views import JobsQuery
from headway.core.state import State
from headway.runtime.timing import REAL
from headway.systems.calls import make
from headway.systems.directory.database import Directory
from headway.systems.parts import Parts
from headway.systems.telephony.providers import read_telephony
from tests.server.rig import Rig, serving
from tests.systems.telephony.carrier_rig import CarrierRig

LIMIT_S = 120
NUMBERS = {"+15550001001": 2, "+15550001002": 1}
"""Numbers to call from, and how many calls each can carry at once."""


@dataclass(kw_only=True)
class Site:
    """A server and a worker in this process.

    Attributes:
        rig: the server.
        app: the App whose worker runs the leads.
        carrier: the carrier that places the calls.
    """

    rig: Rig
    app: hw.App
    carrier: CarrierRig

    async def post(self, *leads: Mapping[str, Any]) -> httpx.Response:
        """Send leads."""
        body = dict(leads[0]) if len(leads) == 1 else [dict(one) for one in leads]
        return await self.rig.call(Role.ADMIN, "POST", "/leads", body)

    async def jobs(self, *states: State) -> list[Any]:
        """Return the leads' jobs in these states."""
        query = JobsQuery(kind="lead", states=states, limit=1_000, runs=True)
        return list((await self.app.store.read(query)).rows)

    async def until(self, holds: Any, what: str) -> None:
        """Repeat a check until it holds."""
        try:
            async with asyncio.timeout(LIMIT_S):
                while not await holds():
                    await REAL.pause(0.02)
        except TimeoutError:
            jobs = [(one.state, one.tenant, one.reason, one.stage) for one in await self.jobs()]
            message = f"never {what}: {jobs}; {self.live()}"
            raise AssertionError(message) from None

    def live(self) -> dict[str, str]:
        """Return the calls that are answered and not over, by id, with the numbers called."""
        calls = self.carrier.network.ledger.calls
        return {
            sid: one.plan.to
            for sid, one in calls.items()
            if one.answered_at is not None and one.ended_at is None
        }

    def called(self) -> list[str]:
        """Return the called numbers, once for each call."""
        return [one.plan.to for one in self.carrier.network.ledger.calls.values()]


@asynccontextmanager
async def calling(
    carrier: CarrierRig,
    store_url: str,
    directory_url: str,
    *,
    table: Mapping[str, object],
    migration: Mapping[str, object] | None = None,
    numbers: Mapping[str, int] = NUMBERS,
    **calls: Any,
) -> AsyncIterator[Site]:
    """Run a server and a worker of the system until the block exits.

    Args:
        carrier: the carrier that places the calls.
        store_url: URL of the store with the jobs.
        directory_url: URL of the directory with numbers and templates.
        table: the table [calls.table].
        migration: the table [calls.migration].
        numbers: numbers to call from.
        calls: further settings of [calls].
    """
    telephony = read_telephony({"twilio": carrier.settings()})
    parts = Parts(directory=Directory(directory_url), telephony=telephony)
    settings = {"jitter": "0s", "table": table, "migration": migration or {}, **calls}
    system = make(settings, parts)
    app = hw.App(store_url)
    system.declare(app)
    await parts.open("")
    try:
        async with serving(app=app, systems=[system], open_here=False) as rig:
            parts.base_url = rig.url
            for number, channels in numbers.items():
                body = {"number": number, "provider": "twilio", "maximum_channels": channels}
                reply = await rig.call(Role.ADMIN, "POST", "/numbers", body)
                assert reply.status_code in {201, 409}, reply.text
            worker = app.worker(lease="5s", concurrency=50)
            running = asyncio.create_task(worker.run())
            try:
                yield Site(rig=rig, app=app, carrier=carrier)
            finally:
                worker.stop()
                await running
    finally:
        await app.close_async()
        await parts.close()


def lead(n: int, **more: Any) -> dict[str, Any]:
    """Return a lead as a caller sends it."""
    return {"phone": f"+1555010{n:04}", "tz": "America/Denver", "reseller": "acme", **more}
