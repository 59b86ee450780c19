"""Observing calls from outside: a real server and worker, a carrier that speaks Twilio's API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse
from standardwebhooks.webhooks import Webhook
from twilio.request_validator import RequestValidator

import headway as hw
from headway.contract.views import JobsQuery
from headway.runtime.timing import REAL
from headway.systems.calls import make
from headway.systems.directory.database import Directory
from headway.systems.parts import Parts
from headway.systems.telephony.providers import read_telephony
from tests.server.rig import Rig, serving
from tests.systems.telephony.carrier_rig import CarrierRig, carrying

# apprise loads its services when the first address is added, and one of them imports imghdr.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")

LIMIT_S = 120
KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NUMBER = "+15550001001"
PHONE = "+15550100001"


@dataclass
class Listening:
    """A receiver of webhooks."""

    port: int = 0
    status: int = 204
    hangs: bool = False
    freed: asyncio.Event = field(default_factory=asyncio.Event)
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        headers = {name.lower(): text for name, text in (one.split(": ", 1) for one in head[1:])}
        self.got.append((headers, await reader.readexactly(int(headers["content-length"]))))
        if self.hangs:
            await self.freed.wait()
        writer.write(f"HTTP/1.1 {self.status} So\r\ncontent-length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()


@pytest.fixture
async def caller() -> AsyncIterator[Listening]:
    made = Listening()
    server = await asyncio.start_server(made.take, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    async with server:
        yield made


@dataclass(kw_only=True)
class Site:
    """A server and a worker in this process, with one number that has one channel."""

    rig: Rig
    app: hw.App
    carrier: CarrierRig

    async def lead(self, **more: Any) -> str:
        body = {"phone": PHONE, "tz": "UTC", "reseller": "acme", **more}
        reply = await self.rig.call(None, "POST", "/leads", body)
        assert reply.status_code == 201, reply.text
        return reply.json()["id"]

    async def finished(self, lead: str) -> dict[str, Any]:
        async def is_finished() -> dict[str, Any] | None:
            found = await self.rig.ask(None, f"/leads/{lead}")
            return found if found["status"] == "FINISHED" else None

        return await until(is_finished)

    async def follow_ups(self) -> list[Any]:
        query = JobsQuery(kind="lead_finished", runs=True)
        return list((await self.app.store.read(query)).rows)

    async def metrics(self) -> dict[tuple[str, tuple[str, ...]], float]:
        reply = await self.rig.http.get("/metrics")
        return {
            (
                sample.name.removeprefix("headway_calls_"),
                tuple(sample.labels.values()),
            ): sample.value
            for family in parse(reply.text)
            for sample in family.samples
        }


async def until(condition: Callable[[], Awaitable[Any]]) -> Any:
    """Repeat a query until it finds something; return what it finds."""
    async with asyncio.timeout(LIMIT_S):
        while not (found := await condition()):
            await REAL.pause(0.02)
        return found


@asynccontextmanager
async def calling(
    folder: Path, settings: Mapping[str, object], **options: Any
) -> AsyncIterator[Site]:
    async with carrying() as carrier:
        telephony = read_telephony({"twilio": carrier.settings()})
        directory = Directory(f"sqlite:///{folder}/directory.db")
        parts = Parts(directory=directory, telephony=telephony)
        given = {"jitter": "0s", "customer_limit": 100, "reporting_keys": [KEY], **settings}
        system = make(given, parts)
        app = hw.App(f"sqlite:///{folder}/jobs.db")
        system.declare(app)
        await parts.open("")
        try:
            async with serving(app=app, systems=[system], tokens=False, **options) as rig:
                parts.base_url = rig.url
                body = {"number": NUMBER, "provider": "twilio", "maximum_channels": 1}
                assert (await rig.call(None, "POST", "/numbers", body)).status_code == 201
                worker = app.worker(lease="5s", concurrency=10)
                running = asyncio.create_task(worker.run())
                try:
                    yield Site(rig=rig, app=app, carrier=carrier)
                finally:
                    worker.stop()
                    await running
        finally:
            await app.close_async()
            await parts.close()


# ------------------------------------------------------------------------------- reporting


async def test_result_of_a_lead_is_reported_to_its_callers_webhook_signed(
    tmp_path: Path, caller: Listening
):
    async with calling(tmp_path, {"reporting_private": True}) as site:
        lead = await site.lead(
            payload={"order": 17},
            key="o-17",
            reporting_webhook_url=f"http://127.0.0.1:{caller.port}/",
        )
        found = await site.finished(lead)

        async def reported() -> bool:
            return bool(caller.got)

        await until(reported)
    ((headers, body),) = caller.got
    said = Webhook(KEY).verify(body, headers)
    assert said["type"] == "lead.finished"
    assert said["timestamp"].endswith("+00:00")
    data = said["data"]
    assert (data["id"], data["outcome"], data["status"]) == (lead, "COMPLETED", "FINISHED")
    assert (data["key"], data["payload"], data["reseller"]) == ("o-17", {"order": 17}, "acme")
    assert data["attempts"] == found["attempts"]


async def test_caller_that_refuses_its_result_gets_it_again_with_the_same_id(
    tmp_path: Path, caller: Listening
):
    caller.status = 503
    async with calling(tmp_path, {"reporting_private": True}) as site:
        lead = await site.lead(reporting_webhook_url=f"http://127.0.0.1:{caller.port}/")
        await site.finished(lead)

        async def waits() -> Any:
            return next((one for one in await site.follow_ups() if one.state == "scheduled"), None)

        job = await until(waits)
        assert job.error.endswith("the webhook answered 503"), job.error
        assert job.policy.retry.attempts == 20
        assert (await site.metrics())["reports_failed_total", ()] == 1
        caller.status = 200
        reply = await site.rig.call(None, "POST", f"/v1/jobs/{job.id}/run-now", {})
        assert reply.status_code == 200, reply.text

        async def done() -> Any:
            return next((one for one in await site.follow_ups() if one.state == "succeeded"), None)

        await until(done)
        assert (await site.rig.ask(None, f"/leads/{lead}"))["outcome"] == "COMPLETED"
    ids = {headers["webhook-id"] for headers, _ in caller.got}
    assert ids == {job.id}
    assert len(caller.got) == 2


async def test_hanging_webhook_keeps_no_worker_from_the_calls_of_others(
    tmp_path: Path, caller: Listening
):
    caller.hangs = True
    settings = {"reporting_private": True, "reports_at_once": 1}
    async with calling(tmp_path, settings) as site:
        hung = f"http://127.0.0.1:{caller.port}/"
        for _ in range(3):
            await site.finished(await site.lead(reporting_webhook_url=hung))
        await site.finished(await site.lead(reseller="other"))
        running = [one for one in await site.follow_ups() if one.state == "running"]
        assert len(running) == 1
        caller.freed.set()


async def test_results_go_to_no_private_address_unless_allowed(tmp_path: Path, caller: Listening):
    async with calling(tmp_path, {}) as site:
        lead = await site.lead(reporting_webhook_url=f"http://127.0.0.1:{caller.port}/")
        assert (await site.finished(lead))["outcome"] == "COMPLETED"

        async def dead() -> Any:
            return next((one for one in await site.follow_ups() if one.state == "dead"), None)

        assert "not reported to private addresses: 127.0.0.1" in (await until(dead)).reason
    assert caller.got == []


async def test_address_that_cannot_be_reported_to_is_refused_at_intake(tmp_path: Path):
    async with calling(tmp_path, {}) as site:
        good = {"phone": PHONE, "tz": "UTC", "reseller": "acme"}
        bad = {**good, "reporting_webhook_url": "http://user:secret@hooks.example/"}
        reply = await site.rig.call(None, "POST", "/leads", [good, bad])
        assert (reply.status_code, reply.json()["lead"]) == (422, 1)
        assert "has a user" in reply.json()["detail"]
        assert (await site.rig.ask(None, "/leads"))["rows"] == []


async def test_lead_that_wants_a_report_is_refused_without_keys(tmp_path: Path):
    async with calling(tmp_path, {"reporting_keys": []}) as site:
        body = {"phone": PHONE, "tz": "UTC", "reseller": "acme"}
        body["reporting_webhook_url"] = "https://hooks.example/"
        reply = await site.rig.call(None, "POST", "/leads", body)
        assert reply.status_code == 422
        assert "has no keys to sign reports with" in reply.json()["detail"]


# ------------------------------------------------------------------------ metrics and alerts


async def test_call_is_visible_in_the_metrics(tmp_path: Path):
    async with calling(tmp_path, {}) as site:
        site.carrier.person("+15550100002", "busy")
        await site.finished(await site.lead())
        reply = await site.rig.call(
            None, "PUT", "/templates/once", {"max_retry": 0, "retry_offset": "1s"}
        )
        assert reply.status_code in {200, 201}, reply.text
        lead = await site.lead(phone="+15550100002", template="once")
        assert (await site.finished(lead))["outcome"] == "BUSY"
        found = await site.metrics()
    assert found["attempts_total", ("COMPLETED",)] == 1
    assert found["attempts_total", ("BUSY",)] == 1
    assert found["lines", (NUMBER,)] == 1
    assert found["lines_used", (NUMBER,)] == 0
    assert found["number_usable", (NUMBER,)] == 1
    assert 0 <= found["due_to_dial_seconds", ("0.99",)] < LIMIT_S
    assert found["workers", ()] == 1


async def test_orphan_webhook_and_a_pool_without_numbers_alert_through_apprise(
    tmp_path: Path, caller: Listening
):
    alerts = {"urls": [f"json://127.0.0.1:{caller.port}/"], "each": "100ms"}
    settings = {"alerts": {"no_number_for": "1ms"}}

    def alerts_of(rule: str) -> list[dict[str, Any]]:
        alerts = [json.loads(body) for _, body in caller.got]
        return [one for one in alerts if one["title"].startswith(f"[P1] {rule}:")]

    async with calling(tmp_path, settings, chores=True, alerts=alerts) as site:

        async def leads() -> bool:
            return site.rig.service.alerts.leads

        await until(leads)
        reply = await site.rig.call(None, "PATCH", f"/numbers/{NUMBER}", {"status": "DISABLED"})
        assert reply.status_code == 200, reply.text
        await site.lead()

        async def no_number() -> Any:
            return alerts_of("no_number")

        (alert, *_) = await until(no_number)
        assert "calls.numbers" in alert["title"]
        assert "docs/how-to/calls-runbooks.md#no_number" in alert["message"]
        url = f"{site.rig.url}/calls/hooks/twilio?ref=nobody:1"
        form = {"CallSid": "CA" + "0" * 32, "CallStatus": "completed"}
        signer = RequestValidator(site.carrier.auth_token)
        signature = signer.compute_signature(url, form)
        reply = await site.rig.http.post(url, data=form, headers={"X-Twilio-Signature": signature})
        assert reply.status_code == 204, reply.text

        async def orphan() -> Any:
            return alerts_of("orphan_webhook")

        (alert, *_) = await until(orphan)
        assert alert["title"] == "[P1] orphan_webhook: twilio"


def test_invalid_threshold_refuses_to_start(tmp_path: Path):
    parts = Parts(
        directory=Directory(f"sqlite:///{tmp_path}/directory.db"), telephony=read_telephony({})
    )
    with pytest.raises(hw.InvalidValue, match=r"calls\.alerts\.x: there is no such setting"):
        make({"alerts": {"x": 1}}, parts)
    with pytest.raises(hw.InvalidValue, match="reporting_keys: key 1"):
        make({"reporting_keys": ["hunter2"]}, parts)
