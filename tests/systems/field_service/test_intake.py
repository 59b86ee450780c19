"""Intake from outside: geocoding of positions, and what happens while a service is unreachable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from headway.runtime.timing import REAL
from headway.server.listener import ListenAddress, Listener
from headway.systems.field_service import intake
from tests.server.problems import problem
from tests.systems.field_service.field_rig import CUSTOMER, HERE, FieldRig, a_field


@asynccontextmanager
async def a_geocoder(places: dict[str, Any]) -> AsyncGenerator[str]:
    """Run a service that answers as Nominatim does; yield its URL."""

    async def drips() -> AsyncGenerator[bytes]:
        for _ in range(100):
            yield b" "
            await REAL.pause(0.02)

    async def floods() -> AsyncGenerator[bytes]:
        for _ in range(10):
            yield b" " * 200_000
            await REAL.pause(0)

    async def search(request: Request) -> Response:
        assert request.query_params["format"] == "jsonv2"
        asked = request.query_params["q"]
        if asked in {"drips", "floods"}:
            return StreamingResponse(drips() if asked == "drips" else floods())
        if asked == "moved":
            return RedirectResponse("http://127.0.0.1:9/", 302)
        found = places.get(asked, [])
        return JSONResponse(found, status_code=200 if isinstance(found, list) else 500)

    listener = Listener(Starlette(routes=[Route("/search", search)]), ListenAddress(port=0))
    running = asyncio.create_task(listener.run())
    await listener.answers()
    try:
        yield f"{listener.url}/search?email=me@example.org"
    finally:
        listener.stop(now=True)
        await running


async def post(field: FieldRig, **more: Any) -> Any:
    body = {"customer": CUSTOMER, **more}
    return await field.rig.call(None, "POST", "/service-requests", body)


async def test_address_is_looked_up_and_a_failing_geocoder_writes_nothing(tmp_path: Path):
    # Nominatim returns numbers as text.
    here = {name: str(value) for name, value in HERE.items()}
    places = {"Alexanderplatz 1": [{**here, "display_name": "x"}], "broken": {"error": "x"}}
    async with (
        a_geocoder(places) as url,
        a_field(tmp_path, geocoder_url=url, work=False) as field,
    ):
        reply = await post(field, address="Alexanderplatz 1")
        assert reply.json()["position"] == HERE
        problem(await post(field, address="nowhere"), 422, "invalid_value")
        problem(await post(field, address="broken"), 503, "store_unavailable")
        assert len(await field.jobs("offer")) == 1
    async with a_field(tmp_path, geocoder_url="http://127.0.0.1:9/", work=False) as field:
        problem(await post(field, address="anywhere"), 503, "store_unavailable")
        assert await field.jobs("offer") == []


async def test_unreachable_directory_is_reported_at_intake_and_delays_a_turn(tmp_path: Path):
    async with a_field(tmp_path, lines={}, offer_timeout="1h") as field:
        await field.technician("ada", km=1)
        await field.technician("bob", km=2)
        sent = await field.ask()
        await field.asks(sent["id"], "ada")
        await field.directory.close()
        reply = await post(field, position=HERE)
        problem(reply, 503, "store_unavailable")
        ref = f"{sent['id']}:1"
        await field.app.signal_async(ref, event="no", final="declined", candidate="ada")
        # The turn is postponed, uses no attempt, and asks no technician.
        told = await field.until(sent["id"], lambda told: "scheduled" in told["why"])
        assert told["offer"] is None
        await field.directory.open()
        await field.rig.call(None, "POST", f"/v1/jobs/{sent['id']}/run-now")
        await field.asks(sent["id"], "bob")
        assert (await field.job(sent["id"])).attempt == 1


async def test_intake_answers_before_the_first_call(tmp_path: Path):
    async with a_field(tmp_path, work=False) as field:
        await field.technician("ada", "accept")
        sent = await field.ask()
        assert sent["status"] == "dispatching"
        assert sent["left"] == ["ada"]
        assert field.carrier.network.ledger.calls == {}
        field.work()
        await field.becomes(sent["id"], "assigned")


async def test_slow_flooding_or_nonsensical_geocoder_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(intake, "TIMEOUT_S", 0.3)
    places = {"mars": [{"lat": "123.0", "lon": "0"}], "limbo": [{"lat": "nan", "lon": "0"}]}
    async with (
        a_geocoder(places) as url,
        a_field(tmp_path, geocoder_url=url, work=False) as field,
    ):
        for address in ("floods", "drips", "moved", "mars"):
            problem(await post(field, address=address), 503, "store_unavailable")
        assert (await post(field, address="limbo")).status_code in {422, 503}
        assert await field.jobs("offer") == []


async def test_meaningless_form_is_refused(tmp_path: Path):
    async with a_field(tmp_path, work=False) as field:
        await field.technician("ada", skills=("gas",))
        for skill in (" ", "a\0b", "x" * 65):
            reply = await post(field, position=HERE, skills=[skill])
            problem(reply, 422, "invalid_value")
        reply = await post(field, position=HERE, skills=["  GAS "])
        assert reply.json()["left"] == ["ada"]
        assert reply.json()["skills"] == ["GAS"]
        reply = await field.rig.call(
            None, "PUT", "/field-service/settings", {"offer_timeout": 0, "urgency": {"low": "0s"}}
        )
        problem(reply, 422, "invalid_value")
