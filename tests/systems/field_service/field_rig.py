"""The complete system: a server, a worker, a directory, and a carrier that speaks Twilio's API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

import headway as hw
from headway.carrier.webhooks import signature
from headway.contract.definitions import Role
from headway.contract.store import Store
from headway.contract.views import JobQuery, JobsQuery, JobView, Page
from headway.runtime.timing import REAL
from headway.runtime.worker.worker import Worker
from headway.systems.directory.database import Directory
from headway.systems.field_service import FieldService, kinds, make
from headway.systems.field_service.records import Technician, User
from headway.systems.field_service.settings import OfferTimes
from headway.systems.field_service.technicians import TECHNICIANS
from headway.systems.field_service.users import USERS
from headway.systems.parts import Parts
from headway.systems.telephony.providers import read_telephony
from tests.server.rig import Rig
from tests.systems.telephony.carrier_rig import CarrierRig, carrying
from tests.web.rig import dashboard

LIMIT_S = 120
"""How long a test waits for an event before it fails."""
SLOW = {"speed": 0.001}
"""Settings of a carrier whose calls do not end before a test ends them."""
LINE = "+15559990000"
CUSTOMER = {"name": "Bo Li", "phone": "+14155550100"}
HERE = {"lat": 52.52, "lon": 13.405}


@dataclass(kw_only=True)
class FieldRig:
    """The complete system.

    Attributes:
        rig: the server.
        carrier: the simulated phone network.
        system: the system under test.
        app: the App whose store holds the jobs.
        who: the role in which the server is called.
        workers: the running workers.
    """

    rig: Rig
    carrier: CarrierRig
    system: FieldService
    app: hw.App
    who: Role | None = None
    workers: dict[Worker, asyncio.Task[None]] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        return self.app.store

    @property
    def directory(self) -> Directory:
        return self.system.context.directory

    # -------------------------------------------------------------------------- directory

    async def technician(
        self,
        name: str,
        *answers: str,
        km: float = 1.0,
        skills: tuple[str, ...] = (),
        on_duty: bool = True,
        channel: str = "voice",
        idle_since: int = 0,
        **person: Any,
    ) -> str:
        """Add a technician this far north who answers in this way; return the phone number."""
        phone = phone_of(name)
        row = Technician(
            id=name,
            name=name.capitalize(),
            phone=phone,
            lat=HERE["lat"] + km / 111.195,
            lon=HERE["lon"],
            skills=list(skills),
            on_duty=on_duty,
            channel=channel,
            idle_since=idle_since,
            version=1,
        )
        async with self.directory.change() as session:
            session.add(row)
            await session.flush()
            await TECHNICIANS.derive(session, [row])
        if answers:
            self.carrier.person(phone, *answers, **person)
        return phone

    async def change(self, technician: str, **fields: Any) -> None:
        """Change a technician, as a PATCH does."""
        async with self.directory.change() as session:
            row = await session.get_one(Technician, technician)
            for key, value in fields.items():
                setattr(row, key, value)
            await session.flush()
            await TECHNICIANS.derive(session, [row])

    async def user(
        self, name: str, *channels: str, roles: tuple[str, ...] = ("Dispatcher",)
    ) -> None:
        row = User(id=name, name=name, roles=list(roles), channels=list(channels), version=1)
        async with self.directory.change() as session:
            session.add(row)
            await session.flush()
            await USERS.derive(session, [row])

    # --------------------------------------------------------------------------- requests

    async def ask(self, **more: Any) -> dict[str, Any]:
        """Send a form; return the reply."""
        body = {"customer": CUSTOMER, "position": HERE, "description": "no heat", **more}
        reply = await self.rig.call(self.who, "POST", "/service-requests", body)
        assert reply.status_code == 201, reply.text
        return reply.json()

    async def get(self, request: str) -> dict[str, Any]:
        return await self.rig.ask(self.who, f"/service-requests/{request}")

    async def say(self, request: str, word: str, technician: str, **more: Any) -> Any:
        """Send a technician's answer by the API; return the reply."""
        path = f"/service-requests/{request}/{word}"
        return await self.rig.call(self.who, "POST", path, {"technician": technician, **more})

    async def move(self, request: str, word: str, **body: Any) -> Any:
        path = f"/service-requests/{request}/{word}"
        return await self.rig.call(self.who, "POST", path, body or None)

    async def until(self, request: str, fits: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """Return the request, once it fits."""
        told: dict[str, Any] = {}
        try:
            async with asyncio.timeout(LIMIT_S):
                while True:
                    told = await self.get(request)
                    if fits(told):
                        return told
                    await REAL.pause(0.01)
        except TimeoutError:
            message = f"it never came to that: {told}"
            raise AssertionError(message) from None

    async def becomes(self, request: str, status: str) -> dict[str, Any]:
        return await self.until(request, lambda told: told["status"] == status)

    async def asks(self, request: str, technician: str) -> dict[str, Any]:
        """Return the request, once this technician is being asked."""
        return await self.until(
            request, lambda told: (told["offer"] or {}).get("technician") == technician
        )

    async def jobs(self, kind: str, **more: Any) -> list[JobView]:
        page: Page[JobView] = await self.store.read(JobsQuery(kind=kind, runs=True, **more))
        return list(page.rows)

    async def ringing(self) -> JobView:
        """Wait until a technician's call has its id at the provider; return the call's job."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                for one in await self.jobs("ring"):
                    if one.runs and one.runs[-1].keys:
                        return one
                await REAL.pause(0.01)

    async def hook(self, path: str, **fields: str) -> httpx.Response:
        """Send a webhook signed as Twilio signs; return the reply."""
        url = f"{self.rig.url}/field-service/hooks/twilio/{path}"
        key = self.carrier.auth_token.encode()
        signed = {"X-Twilio-Signature": signature(key, url, list(fields.items()))}
        return await self.rig.http.post(url, data=fields, headers=signed)

    async def text(self, name: str, words: str, sid: str) -> httpx.Response:
        """Send the webhook of a technician's text message; return the reply."""
        said = {"From": phone_of(name), "To": LINE, "Body": words, "MessageSid": sid}
        return await self.hook("texts", **said)

    async def withdraw(self, request: str) -> dict[str, Any]:
        reply = await self.rig.call(self.who, "DELETE", f"/service-requests/{request}")
        assert reply.status_code == 200, reply.text
        return reply.json()

    async def job(self, request: str) -> JobView:
        found = await self.store.read(JobQuery(id=request))
        assert found is not None
        return found

    async def settled(self, kind: str, count: int) -> list[JobView]:
        """Return the jobs of a kind, once this many are final."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                found = [one for one in await self.jobs(kind) if one.finished_at is not None]
                if len(found) >= count:
                    return found
                await REAL.pause(0.01)

    # ---------------------------------------------------------------------------- workers

    def work(self, **options: Any) -> Worker:
        """Run another worker, until it is stopped."""
        worker = self.app.worker(concurrency=50, lease="2s", **options)
        self.workers[worker] = asyncio.create_task(worker.run())
        return worker

    async def stop(self, worker: Worker, *, now: bool = False) -> None:
        worker.stop(now=now)
        await self.workers.pop(worker)


def phone_of(name: str) -> str:
    """Return the phone number of a technician of this name."""
    return "+1555" + "".join(str(ord(letter) % 10) for letter in name.ljust(7, "_")[:7])


def shorten_first_offer(monkeypatch: pytest.MonkeyPatch, timeout_ms: int) -> None:
    """Let only the first offer end soon, so that later ones have time for their answers."""
    times = iter([OfferTimes(offer_timeout_ms=timeout_ms)])

    async def current_times(_: Directory, declared: OfferTimes) -> OfferTimes:
        return next(times, declared)

    monkeypatch.setattr(kinds, "current_times", current_times)


@asynccontextmanager
async def a_field(
    tmp_path: Path,
    url: str = "memory://",
    *,
    work: bool = True,
    tokens: bool = False,
    carrier: dict[str, Any] | None = None,
    patience: str = "10s",
    **settings: Any,
) -> AsyncGenerator[FieldRig]:
    """Run the complete system until the block exits.

    Args:
        tmp_path: folder for the directory.
        url: URL of the store.
        work: whether a worker runs.
        tokens: whether the server requires tokens.
        carrier: settings of the simulated phone network.
        patience: timeout for each of its replies.
        settings: the table [field_service].
    """
    async with carrying(**(carrier or {})) as world:
        parts = Parts(
            directory=Directory(f"sqlite:///{tmp_path}/directory.db"),
            telephony=read_telephony({"twilio": world.settings(timeout=patience)}),
        )
        written = {"lines": {LINE: 4}, "offer_timeout": "10m", **settings}
        system = make(written, parts)
        app = hw.App(url)
        system.declare(app)
        async with app, AsyncExitStack() as stack:
            # Closed after the server, which may still need the directory for its last replies.
            stack.push_async_callback(parts.close)
            served = dashboard(app=app, systems=[system], tokens=tokens)
            rig = await stack.enter_async_context(served)
            await parts.open(rig.url)
            world.network.inbound_urls[""] = f"{rig.url}/field-service/hooks/twilio/texts"
            field_rig = FieldRig(
                rig=rig, carrier=world, system=system, app=app, who=Role.ADMIN if tokens else None
            )
            if work:
                field_rig.work()
            try:
                yield field_rig
            finally:
                for worker in list(field_rig.workers):
                    await field_rig.stop(worker)
