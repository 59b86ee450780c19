"""Processes that are killed in the middle of offers, and stores that are reopened."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.carrier.network import PhoneNetwork
from headway.core.job import NewJob, derived_id
from headway.core.state import State
from headway.runtime.timing import REAL
from headway.stores import open_store
from headway.stores.ledger.packing import encode_json
from headway.systems.field_service.request import AFTER
from tests.systems.field_service.field_rig import CUSTOMER, HERE, LINE, a_field, phone_of
from tests.systems.field_service.history_checks import all_jobs, calls_at_once, check_record
from tests.systems.telephony.carrier_rig import CarrierRig, carrying

LIMIT_S = 240

SETTINGS = """
store = "sqlite:///jobs.db"
public_url = "{url}"

[telephony.twilio]
account_sid = "{account_sid}"
auth_token = "{auth_token}"
base_url = "{base_url}"
timeout = "2s"

[field_service]
offer_timeout = "1500ms"
line_wait = "5s"
lines = {{ "{line}" = 20 }}
"""


async def nothing(*_: object) -> None:
    """Do nothing; replaces a provider that accepts a request and ignores it."""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Installation:
    """`headway serve --system field_service` in a folder, killed and restarted.

    Attributes:
        url: URL where it listens while it runs.
    """

    def __init__(self, folder: Path, carrier: CarrierRig) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.folder = folder
        told = SETTINGS.format(url=self.url, line=LINE, **carrier.settings())
        (folder / "headway.toml").write_text(told)
        self.process: Process | None = None

    async def start(self) -> None:
        line = ("-m", "headway", "serve", f"--port={self.port}", "--system", "field_service")
        log = (self.folder / "log").open("ab")
        with log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, *line, cwd=self.folder, stdout=log, stderr=log
            )
        async with asyncio.timeout(LIMIT_S), httpx.AsyncClient() as http:
            while True:
                try:
                    await http.get(f"{self.url}/healthz")
                except httpx.TransportError:
                    assert self.process.returncode is None, (self.folder / "log").read_text()
                    await REAL.pause(0.05)
                else:
                    return

    async def kill(self) -> None:
        if self.process is not None:
            if self.process.returncode is None:
                os.kill(self.process.pid, signal.SIGKILL)
            await self.process.wait()


@asynccontextmanager
async def installed(folder: Path, **world: Any) -> AsyncGenerator[tuple[Installation, CarrierRig]]:
    async with carrying(**world) as carrier:
        here = Installation(folder, carrier)
        carrier.network.inbound_urls[""] = f"{here.url}/field-service/hooks/twilio/texts"
        await here.start()
        try:
            yield here, carrier
        finally:
            await here.kill()


async def ask_until_answered(
    http: httpx.AsyncClient, method: str, path: str, body: Any = None
) -> Any:
    """Repeat a request until there is a reply; return the reply."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            try:
                reply = await http.request(method, path, json=body)
            except httpx.TransportError:
                await REAL.pause(0.05)
                continue
            assert reply.status_code < 500, reply.text
            return reply.json()


async def states(http: httpx.AsyncClient, kind: str) -> set[str]:
    rows = (await ask_until_answered(http, "GET", f"/v1/jobs?kind={kind}&limit=1000"))["rows"]
    return {one["state"] for one in rows}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_each_request_ends_once_and_no_technician_is_called_twice_through_repeated_kills(
    tmp_path: Path, seed: int
):
    draw = random.Random(seed)
    world = {"speed": 60, "seed": seed, "answer": 0.8, "unsure": 0.05, "accept": 0.4}
    async with (
        installed(tmp_path, **world) as (here, carrier),
        httpx.AsyncClient(base_url=here.url, timeout=10) as http,
    ):
        for number in range(10):
            name = f"t{number}"
            body = {"id": name, "name": name, "phone": phone_of(name), "channel": "voice", **HERE}
            await ask_until_answered(http, "POST", "/technicians", body)
        dora = {"id": "dora", "name": "Dora", "roles": ["dispatcher"]}
        await ask_until_answered(
            http, "POST", "/users", {**dora, "channels": ["text:+15557770001"]}
        )
        carrier.person("+15557770001", "ignore")

        async def intake() -> list[str]:
            ids: list[str] = []
            for number in range(8):
                form = {"customer": CUSTOMER, "position": HERE, "key": f"form-{number}"}
                told = await ask_until_answered(http, "POST", "/service-requests", form)
                ids.append(told["id"])
                await REAL.pause(draw.uniform(0, 1.5))
            return ids

        sending = asyncio.create_task(intake())
        for _ in range(6):
            await REAL.pause(draw.uniform(0.1, 2.5))
            await here.kill()
            await here.start()
        ids = await sending
        assert len(set(ids)) == 8
        async with asyncio.timeout(LIMIT_S):
            for one in ids:
                path = f"/service-requests/{one}"
                while (await ask_until_answered(http, "GET", path))["status"] == "dispatching":
                    await REAL.pause(0.1)
            for kind in ("offer_ended", "alert_dispatcher"):
                while await states(http, kind) - {"succeeded", "dead"}:
                    await REAL.pause(0.1)
        await here.kill()
        store = open_store(f"sqlite:///{tmp_path}/jobs.db")
        try:
            fates = await check_record(store, ["dora"])
            assert sum(fates.values()) == 8, fates
            assert set(fates) <= {"assigned", "dead"}
            assert len(await all_jobs(store, "offer")) == 8
        finally:
            await store.close()
        ledger = carrier.network.ledger
        assert (ledger.twice(), calls_at_once(ledger)) == ({}, [])


@pytest.mark.slow
@pytest.mark.parametrize("meanwhile", [True, False])
async def test_offer_waiting_for_the_end_of_a_call_is_made_once_though_the_server_is_killed(
    tmp_path: Path, meanwhile: bool
):
    async with (
        installed(tmp_path, speed=0.001) as (here, carrier),
        httpx.AsyncClient(base_url=here.url, timeout=10) as http,
    ):
        carrier.person(phone_of("ada"), "silent")
        ada = {"id": "ada", "name": "Ada", "phone": phone_of("ada"), "channel": "voice", **HERE}
        await ask_until_answered(http, "POST", "/technicians", ada)
        # Hang-ups are ignored: the call continues after its offer.
        carrier.network.hang_up = nothing  # type: ignore[method-assign]
        form = {"customer": CUSTOMER, "position": HERE}
        first = (await ask_until_answered(http, "POST", "/service-requests", form))["id"]
        await carrier.until(lambda world: world.ledger.calls, "called")
        second = (await ask_until_answered(http, "POST", "/service-requests", form))["id"]

        async def waits() -> None:
            """Wait until the first offer is over, and the second request waits for its call."""
            async with asyncio.timeout(LIMIT_S):
                while True:
                    told = await ask_until_answered(http, "GET", f"/service-requests/{first}")
                    over = told["status"] == "pending"
                    told = await ask_until_answered(http, "GET", f"/service-requests/{second}")
                    assert (told["status"], told["asked"]) == ("dispatching", [])
                    if over and "technician.call:ada" in told["why"]:
                        return
                    await REAL.pause(0.05)

        await waits()
        await here.kill()
        (call,) = carrier.network.ledger.calls.values()
        if meanwhile:
            # No one is notified of its end.
            await PhoneNetwork.hang_up(carrier.network, call.sid)
            await here.start()
        else:
            await here.start()
            await waits()
            assert len(carrier.network.ledger.calls) == 1
            await PhoneNetwork.hang_up(carrier.network, call.sid)
        await carrier.until(lambda world: len(world.ledger.calls) == 2, "called again")
        async with asyncio.timeout(LIMIT_S):
            while (await ask_until_answered(http, "GET", f"/service-requests/{second}"))[
                "status"
            ] != ("pending"):
                await REAL.pause(0.05)
        told = await ask_until_answered(http, "GET", f"/service-requests/{second}")
        assert [(one["technician"], one["said"]) for one in told["asked"]] == [("ada", "timeout")]
        assert len(carrier.network.ledger.calls) == 2
        assert calls_at_once(carrier.network.ledger) == []


async def test_offer_survives_the_server_its_worker_and_the_store(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with a_field(tmp_path, url, lines={}, offer_timeout="1h") as field:
        await field.technician("ada", km=1)
        await field.technician("bob", km=2)
        sent = await field.ask()
        before = await field.asks(sent["id"], "ada")
    async with a_field(tmp_path, url, lines={}, offer_timeout="1h", work=False) as field:
        told = await field.get(sent["id"])
        assert told["offer"]["until"] == before["offer"]["until"]
        assert (await field.say(sent["id"], "decline", "ada")).status_code == 200
    async with a_field(tmp_path, url, lines={}, offer_timeout="1h") as field:
        await field.asks(sent["id"], "bob")
        assert (await field.say(sent["id"], "accept", "bob")).status_code == 200
    async with a_field(tmp_path, url, lines={}, offer_timeout="1h") as field:
        told = await field.get(sent["id"])
        assert (told["status"], told["technician"]) == ("assigned", "bob")
        assert (await field.move(sent["id"], "complete")).json()["status"] == "completed"


async def test_offer_expired_during_downtime_continues_at_the_start(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/jobs.db"
    # Long enough for a slow machine to look at the offer, and to stop, before it expires.
    async with a_field(tmp_path, url, lines={}, offer_timeout="4s") as field:
        await field.user("dora", "text:+15557770001")
        await field.technician("ada", km=1)
        sent = await field.ask()
        await field.asks(sent["id"], "ada")
    await REAL.pause(4)
    async with a_field(tmp_path, url, lines={}, offer_timeout="4s", text_from=LINE) as field:
        field.carrier.person("+15557770001", "ignore")
        await field.becomes(sent["id"], "pending")
        await field.settled("alert_dispatcher", 1)
        await check_record(field.store, ["dora"])


async def test_worker_that_stops_at_once_in_a_turn_repeats_it_for_the_same_candidate(
    tmp_path: Path,
):
    async with a_field(tmp_path, offer_timeout="1h", lines={}) as field:
        await field.technician("ada", km=1)
        await field.technician("bob", km=2)
        for _ in range(4):
            sent = await field.ask()
            worker = next(iter(field.workers))
            field.work()
            await field.stop(worker, now=True)
            told = await field.asks(sent["id"], "ada")
            assert told["asked"] == []
            assert (await field.say(sent["id"], "accept", "ada")).status_code == 200
            assert (await field.move(sent["id"], "complete")).status_code == 200


async def test_review_that_the_former_version_left_under_its_name_is_done(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h") as field:
        await field.technician("ada")
        sent = await field.ask()
        await field.asks(sent["id"], "ada")
        review = NewJob(
            id=derived_id("review", sent["id"]),
            kind="offer_look_over",
            lane=AFTER,
            args=encode_json({"request": sent["id"]}),
        )
        await field.store.enqueue([review])
        (done,) = await field.settled("offer_look_over", 1)
        assert (done.id, done.state) == (review.id, State.SUCCEEDED)
