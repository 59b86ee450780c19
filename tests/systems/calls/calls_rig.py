"""The system `calls` as its users run it: a server, a worker, a carrier with Twilio's API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from twilio.request_validator import RequestValidator

import headway as hw
from headway.contract.definitions import DefineRequest, OpenGate, Role
from headway.contract.store import Store
from headway.contract.views import AuditQuery, JobQuery, JobView
from headway.runtime.timing import REAL
from headway.runtime.worker.worker import Worker
from headway.systems.calls import CallsSystem, make
from headway.systems.directory.database import Directory
from headway.systems.parts import Parts
from headway.systems.telephony.providers import read_telephony
from headway.testing.clock import START_AT
from tests.server.rig import Rig
from tests.systems.telephony.carrier_rig import CarrierRig, carrying
from tests.web.rig import dashboard

LIMIT_S = 120
"""How long a test waits for an event before it fails."""
NUMBER, OTHER = "+15550001001", "+15550001002"
PHONE = "+14155550100"


class LiveClock:
    """A clock that starts at 2026-01-01T00:00Z, advances in real time, and can jump.

    Attributes:
        ahead: how far it has been moved forward, in ms.
    """

    def __init__(self) -> None:
        self.ahead = 0
        self._begun = REAL.monotonic()

    def __call__(self) -> int:
        return START_AT + int((REAL.monotonic() - self._begun) * 1000) + self.ahead


@dataclass(kw_only=True)
class Calls:
    """A server, a worker and a carrier.

    Attributes:
        rig: the server.
        app: the App whose worker runs the leads.
        system: the system whose routes are served.
        carrier: the carrier that places the calls.
        workers: the running workers.
    """

    rig: Rig
    app: hw.App
    system: CallsSystem
    carrier: CarrierRig
    workers: list[tuple[Worker, asyncio.Task[None]]] = field(default_factory=list)

    @property
    def store(self) -> Store:
        return self.app.store

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        who: Role | str | None = None,
        **more: Any,
    ) -> httpx.Response:
        """Send one request, as an administrator by default."""
        return await self.rig.call(Role.ADMIN if who is None else who, method, path, body, **more)

    async def ask(self, path: str, **params: Any) -> Any:
        """Return the reply to a GET; it must be 200."""
        return await self.rig.ask(Role.ADMIN, path, **params)

    async def number(
        self, number: str = NUMBER, channels: int = 1, provider: str = "twilio", **more: Any
    ) -> None:
        """Add a number."""
        body = {"number": number, "provider": provider, "maximum_channels": channels, **more}
        reply = await self.call("POST", "/numbers", body)
        assert reply.status_code == 201, reply.text

    async def change(self, number: str, **change: Any) -> None:
        """Change a number."""
        reply = await self.call("PATCH", f"/numbers/{number}", change)
        assert reply.status_code == 200, reply.text

    async def template(self, name: str = "default", **body: Any) -> None:
        """Create or replace a template."""
        reply = await self.call("PUT", f"/templates/{name}", body)
        assert reply.status_code == 200, reply.text

    async def lead(self, phone: str = PHONE, *, status: int = 201, **body: Any) -> str:
        """Send a lead; return its id."""
        whole = {"phone": phone, "tz": "America/Los_Angeles", "reseller": "acme", **body}
        reply = await self.call("POST", "/leads", whole)
        assert reply.status_code == status, reply.text
        return reply.json()["id"]

    async def get_lead(self, lead: str) -> Any:
        """Return the reply to GET /leads/{id}."""
        return await self.ask(f"/leads/{lead}")

    async def job(self, lead: str) -> JobView:
        """Return the lead's job."""
        found = await self.store.read(JobQuery(id=lead))
        assert found is not None
        return found

    async def until(self, holds: Callable[[], Awaitable[Any]], what: str) -> Any:
        """Repeat a query until it finds anything; return what it finds."""
        try:
            async with asyncio.timeout(LIMIT_S):
                while not (found := await holds()):
                    await REAL.pause(0.01)
                return found
        except TimeoutError:
            leads = (await self.ask("/leads"))["rows"]
            told = [(one, await self.get_lead(one["id"])) for one in leads]
            message = f"never {what}: {[(one, now['why']) for one, now in told]}"
            raise AssertionError(message) from None

    async def until_status(self, lead: str, status: str, **more: Any) -> Any:
        """Return the lead, once it has this status and these values."""

        async def has() -> Any:
            found = await self.get_lead(lead)
            fits = found["status"] == status and all(found[one] == more[one] for one in more)
            return found if fits else None

        return await self.until(has, f"{status} {more}")

    async def finished(self, lead: str) -> Any:
        """Return the lead, once it is finished."""
        return await self.until_status(lead, "FINISHED")

    async def until_why(self, lead: str, *words: str) -> str:
        """Return why a lead waits, once the reason contains these words."""

        async def says() -> str | None:
            why = (await self.get_lead(lead))["why"] or ""
            return why if all(word in why for word in words) else None

        return await self.until(says, f"why with {words}")

    async def audit(self) -> None:
        """Check that permits and their holders agree."""
        found = await self.store.read(AuditQuery())
        assert not found.differences, found

    async def close(self, gate: str, reason: str = "a complaint") -> None:
        """Close a gate, as an operator would."""
        reply = await self.call("POST", "/v1/closures", {"gate": gate, "reason": reason})
        assert reply.status_code == 200, reply.text

    async def open(self, gate: str) -> None:
        """Reopen a gate."""
        reply = await self.call("DELETE", f"/v1/closures/{gate}")
        assert reply.status_code == 200, reply.text

    async def jump(self, clock: LiveClock, ms: int) -> None:
        """Advance the store's clock, and wake all workers and chores."""
        clock.ahead += ms
        await self.store.sweep(1_000)
        await self.store.define(DefineRequest(items=(OpenGate(name="all"),), author="the rig"))

    async def webhook(
        self, run: str, call_id: str, status: str, *, n: int = 0, **more: str
    ) -> httpx.Response:
        """Post a status webhook, signed as Twilio signs.

        Args:
            run: reference of the run, in the URL.
            call_id: id of the call.
            status: Twilio's name of the status.
            n: its sequence number.
            more: further fields.
        """
        url = f"{self.rig.url}/calls/hooks/twilio?ref={run}"
        account = self.carrier.account_sid
        form = {"CallSid": call_id, "AccountSid": account, "CallStatus": status}
        form |= {"SequenceNumber": str(n), "From": NUMBER, "To": PHONE, **more}
        signature = RequestValidator(self.carrier.auth_token).compute_signature(url, form)
        headers = {"X-Twilio-Signature": signature}
        return await self.rig.http.post(url, data=form, headers=headers)

    def calls_to(self, phone: str = PHONE) -> list[Any]:
        """Return the calls that the carrier has placed to a phone."""
        calls = self.carrier.network.ledger.calls.values()
        return [one for one in calls if one.plan.to == phone]

    async def work(self, **options: Any) -> Worker:
        """Start a worker."""
        worker = self.app.worker(**{"lease": "5s", "concurrency": 50, **options})
        self.workers.append((worker, asyncio.create_task(worker.run())))
        return worker

    async def rest(self) -> None:
        """Stop all workers."""
        workers, self.workers = self.workers, []
        for worker, _ in workers:
            worker.stop()
        await asyncio.gather(*(running for _, running in workers))


@asynccontextmanager
async def calling(
    folder: Path | str,
    *,
    store: str | Store = "memory://",
    work: bool = True,
    settings: Mapping[str, object] | None = None,
    telephony: Mapping[str, Mapping[str, object]] | None = None,
    timing: Any = REAL,
    **carrier: Any,
) -> AsyncIterator[Calls]:
    """Run a server, a worker and a carrier until the block exits.

    Args:
        folder: folder for the directory, or the directory's URL.
        store: the store with the leads.
        work: whether a worker runs from the start.
        settings: the table [calls].
        telephony: further providers.
        timing: timing of the system.
        carrier: settings of the carrier; by default each call is answered.
    """
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(carrying(**carrier))
        telephony = read_telephony({"twilio": world.settings(), **(telephony or {})})
        url = folder if isinstance(folder, str) else f"sqlite:///{folder}/directory.db"
        directory = Directory(url)
        parts = Parts(directory=directory, telephony=telephony, timing=timing)
        system = make({"jitter": "0s", **(settings or {})}, parts)
        app = hw.App(store) if isinstance(store, str) else hw.App(store=store)
        system.declare(app)
        stack.push_async_callback(app.close_async)
        stack.push_async_callback(parts.close)
        await parts.open("http://nowhere.invalid")
        rig = await stack.enter_async_context(dashboard(app=app, systems=[system], chores=work))
        parts.base_url = rig.url
        calls = Calls(rig=rig, app=app, system=system, carrier=world)
        stack.push_async_callback(calls.rest)
        if work:
            await calls.work()
        yield calls
