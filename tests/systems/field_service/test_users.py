"""Users over HTTP: stored, changed and imported, and alerted by their current role."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.server.problems import problem
from tests.systems.field_service.field_rig import FieldRig, a_field

# Raised by apprise's own imports.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")

DORA = {"name": "Dora", "roles": ["DisPatcher"], "channels": ["text:+15557770001"]}


async def call(field: FieldRig, method: str, path: str, body: Any = None, **more: Any) -> Any:
    return await field.rig.call(field.who, method, f"/users{path}", body, **more)


async def names(field: FieldRig) -> list[str]:
    return [one["id"] for one in (await field.rig.ask(None, "/users", role="dispatcher"))["rows"]]


async def test_user_is_found_by_the_current_roles(tmp_path: Path):
    async with a_field(tmp_path, work=False) as field:
        assert (await call(field, "POST", "", DORA)).status_code == 201
        problem(await call(field, "POST", "", DORA), 409, "id_conflict")
        assert await names(field) == ["dora"]
        await call(field, "PATCH", "/dora", {"roles": ["cook"]}, headers={"If-Match": '"1"'})
        assert await names(field) == []
        reply = await call(field, "PATCH", "/dora", {"name": "D"}, headers={"If-Match": '"1"'})
        problem(reply, 409, "revision_conflict")
        csv = "name,roles,channels\nDora,dispatcher,\n"
        csv += "Dan,boss|Dispatcher,text:+15557770002 mailto://a:b@c.org\n"
        told = await call(
            field, "POST", "/import", content=csv, headers={"Content-Type": "text/csv"}
        )
        assert (told.json()["added"], told.json()["changed"]) == (1, 1)
        assert await names(field) == ["dan", "dora"]
        dora = (await call(field, "GET", "/dora")).json()
        assert dora["channels"] == ["text:+15557770001"]
        assert len((await call(field, "GET", "/dan")).json()["channels"]) == 2
        assert (await call(field, "DELETE", "/dora")).status_code == 204
        assert await names(field) == ["dan"]


async def test_channel_without_a_valid_address_is_refused(tmp_path: Path):
    async with a_field(tmp_path, work=False) as field:
        for channel in ("text:555", "call:", "nothing", "xyz://a", "", "text:+1555 "):
            reply = await call(field, "POST", "", {**DORA, "channels": [channel]})
            assert reply.status_code == 422
        assert await names(field) == []


async def test_dispatcher_added_later_is_alerted_of_the_next_exhausted_request(tmp_path: Path):
    async with a_field(tmp_path, lines={}) as field:
        sent = await field.ask()
        await field.settled("offer_ended", 1)
        assert await field.jobs("alert_dispatcher") == []
        await call(field, "POST", "", DORA)
        await field.move(sent["id"], "redispatch")
        await field.settled("offer_ended", 2)
        (alert,) = await field.jobs("alert_dispatcher")
        assert alert.subject == sent["id"]
