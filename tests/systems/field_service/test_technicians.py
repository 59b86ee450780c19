"""Technicians over HTTP: stored, changed, removed and imported, and found at their positions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.contract.definitions import Role
from headway.server.caller import ROLES, Permission
from headway.systems.field_service.records import Technician
from tests.server.problems import problem
from tests.systems.field_service.field_rig import HERE, FieldRig, a_field

ADA = {"name": "Ada King", "phone": "+4915550100", **HERE, "skills": ["Gas"]}
CSV = {"Content-Type": "text/csv"}


async def call(field: FieldRig, method: str, path: str, body: Any = None, **more: Any) -> Any:
    return await field.rig.call(field.who, method, f"/technicians{path}", body, **more)


async def imported(field: FieldRig, text: str | bytes, query: str = "") -> httpx.Response:
    return await call(field, "POST", f"/import{query}", content=text, headers=CSV)


async def near(field: FieldRig, **asked: Any) -> list[str]:
    told = await field.rig.ask(field.who, "/technicians/nearby", **{**HERE, **asked})
    return [one["id"] for one in told["rows"]]


async def test_technician_is_stored_changed_and_forgotten_and_each_change_is_found(tmp_path: Path):
    async with a_field(tmp_path, work=False) as field:
        made = await call(field, "POST", "", ADA)
        assert (made.status_code, made.json()["id"], made.headers["ETag"]) == (
            201,
            "ada-king",
            '"1"',
        )
        assert await near(field, skill="GAS") == ["ada-king"]
        problem(await call(field, "POST", "", ADA), 409, "key_conflict")
        other = {**ADA, "id": "ada-king", "phone": "+4915550101"}
        problem(await call(field, "POST", "", other), 409, "id_conflict")
        told = await call(field, "POST", "", {**ADA, "phone": "+4915550101"})
        assert told.json()["id"].startswith("ada-king-")
        problem(
            await call(field, "PATCH", "/ada-king", {"phone": "+4915550101"}), 409, "key_conflict"
        )
        headers = {"If-Match": '"1"'}
        changed = await call(field, "PATCH", "/ada-king", {"lat": 53.5}, headers=headers)
        assert changed.headers["ETag"] == '"2"'
        problem(
            await call(field, "PATCH", "/ada-king", {"lat": 53.6}, headers=headers),
            409,
            "revision_conflict",
        )
        assert await near(field, skill="gas") == [told.json()["id"]]
        assert "ada-king" in await near(field, skill="gas", radius_km=200)
        await call(field, "PATCH", f"/{told.json()['id']}", {"on_duty": False})
        assert await near(field) == []
        problem(await call(field, "PATCH", "/ada-king", {"name": None}), 422, "invalid_value")
        listed = await field.rig.ask(None, "/technicians", limit=1)
        assert [one["id"] for one in listed["rows"]] == ["ada-king"]
        rest = await field.rig.ask(None, "/technicians", limit=1, cursor=listed["cursor"])
        assert [one["on_duty"] for one in rest["rows"]] == [False]
        assert rest["cursor"] is None
        late = await call(field, "DELETE", "/ada-king", headers=headers)
        problem(late, 409, "revision_conflict")
        removed = await call(field, "DELETE", "/ada-king", headers={"If-Match": "*"})
        assert removed.status_code == 204
        problem(await call(field, "GET", "/ada-king"), 404, "unknown_record")


async def test_technician_nowhere_on_earth_is_refused(tmp_path: Path):
    async with a_field(tmp_path, work=False) as field:
        json = {"Content-Type": "application/json"}
        for wrong in ("NaN", "Infinity", "91", '"52"'):
            who = '"name": "Ada", "phone": "+4915550100"'
            body = f'{{{who}, "lat": {wrong}, "lon": 13}}'
            reply = await call(field, "POST", "", content=body.encode(), headers=json)
            assert reply.status_code in {400, 422}, reply.text
            body = f'{{"customer": {{{who}}}, "position": {{"lat": {wrong}, "lon": 1}}}}'
            reply = await field.rig.call(
                None, "POST", "/service-requests", content=body.encode(), headers=json
            )
            assert reply.status_code in {400, 422}, reply.text
        for wrong in ("nan", "NaN", "inf", "91", "52x", "1e400", ""):
            rows = f"name,phone,lat,lon\nAda,+4915550100,{wrong},13\n"
            problem(await imported(field, rows), 422, "invalid_value")


@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
async def test_id_with_nul_is_refused_before_a_database_reads_it(tmp_path: Path, method: str):
    async with a_field(tmp_path, work=False) as field:
        body = {"name": "Ada"} if method == "PATCH" else None
        problem(await call(field, method, "/a%00", body), 422, "invalid_value")


async def test_import_adds_and_changes_and_a_bad_row_writes_nothing(tmp_path: Path):
    async with a_field(tmp_path, work=False) as field:
        rows = "ID;Name;Phone;Lat;Lon;Skills;On_Duty;Channel\n"
        first = rows + "ada;Ada;+15550000001;52.52;13.40;gas|Heat;yes;VOICE\n\n;;;;;;;\n"
        told = (await imported(field, "\ufeff" + first)).json()
        assert told == {
            "rows": 1,
            "added": 1,
            "changed": 0,
            "unchanged": 0,
            "refused": 0,
            "faults": [],
        }
        assert await near(field, skill=["gas", "heat"]) == ["ada"]
        assert (await imported(field, first)).json()["unchanged"] == 1
        # Matched by phone if there is no id; fields that are not given stay unchanged.
        moved = "name,phone,lat,lon\nAda,+15550000001,52.6,13.4\nBob,+15550000002,52.6,13.4\n"
        told = (await imported(field, moved)).json()
        assert (told["added"], told["changed"]) == (1, 1)
        assert (await call(field, "GET", "/ada")).json()["skills"] == ["gas", "Heat"]
        bad = "name,phone,lat,lon\nCleo,+15550000003,52.6,13.4\nDan,555,52.6,13.4\n"
        bad += "Eve,+15550000003,1,1\n"
        reply = await imported(field, bad)
        told = problem(reply, 422, "invalid_value")
        assert [one["where"] for one in told["errors"]] == ["row 3", "row 4"]
        # In the wording of all other replies, not of the library that found the error.
        assert told["errors"][0]["what"].startswith("phone: it is '555'")
        assert len((await field.rig.ask(None, "/technicians"))["rows"]) == 2
        told = (await imported(field, bad, "?partial=true")).json()
        assert (told["added"], told["refused"]) == (1, 2)


async def test_technician_with_an_open_offer_is_not_removed_and_one_with_a_request_is(
    tmp_path: Path,
):
    async with a_field(tmp_path, offer_timeout="1h", lines={}) as field:
        await field.technician("ada")
        sent = await field.ask()
        await field.asks(sent["id"], "ada")
        refused = problem(await call(field, "DELETE", "/ada"), 409, "invalid_state")
        assert sent["id"] in refused["detail"]
        assert (await field.say(sent["id"], "accept", "ada")).status_code == 200
        assert (await call(field, "DELETE", "/ada")).status_code == 204
        assert (await field.get(sent["id"]))["technician"] == "ada"
        assert (await field.move(sent["id"], "complete")).status_code == 200
        problem(await call(field, "DELETE", "/ada"), 404, "unknown_record")


async def test_row_whose_derived_id_belongs_to_another_phone_is_refused_and_says_so(tmp_path: Path):
    async with a_field(tmp_path, work=False) as field:
        rows = "name,phone,lat,lon\nAda,+15550000001,52.52,13.40\nBob,+15550000002,52.52,13.40\n"
        assert (await imported(field, rows)).json()["added"] == 2
        (ada,) = (await field.rig.ask(None, "/technicians", phone="+15550000001"))["rows"]
        await call(field, "PATCH", f"/{ada['id']}", {"phone": "+15550000009"})
        told = problem(await imported(field, rows), 422, "invalid_value")
        assert told["errors"][0]["where"] == "row 2"
        assert ada["id"] in told["errors"][0]["what"]
        told = (await imported(field, rows, "?partial=true")).json()
        assert (told["refused"], told["unchanged"]) == (1, 1)


UNREADABLE: list[tuple[bytes, str]] = [
    (b"", "lacks the column"),
    (b"name,phone,lat\n", "lacks the column"),
    (b"name,phone,lat,lon,lon\n", "repeats the column"),
    (b"name,phone,lat,lon,fax\n", "the unknown column"),
    (b"name,phone,lat,lon\rAda,+15550000001,52,13\r", ""),
    (b"name,phone,lat,lon\nAda,+15550000001,52\n", "3 fields"),
    (b'name,phone,lat,lon\n"Ada,+15550000001,52,13\n', "not valid CSV"),
    (b'name,phone,lat,lon\n"Ada"x,+15550000001,52,13\n', "not valid CSV"),
    (b"name,phone,lat,lon\nA\xff,+15550000001,52,13\n", "UTF-8"),
    (b"name,phone,lat,lon\nA\0,+15550000001,52,13\n", "NUL"),
    (b"name,phone,lat,lon\n" + b"a" * 10_001, "more than 10000 bytes"),
    (b"name,phone,lat,lon\n" + b"\n" * 250_001, "more than 250000 rows"),
    (b"name,phone,lat,lon\nAda,+15550000001,52,east\n", "not a number"),
    (b"name,phone,lat,lon\nAda,+15550000001,nan,13\n", "lat is 'nan', which is not a number"),
    (b"name,phone,lat,lon\nAda,+15550000001,52,-inf\n", "lon is '-inf', which is not a number"),
    (b"id,name,phone,lat,lon\n=1+1,Ada,+15550000001,52,13\n", "id"),
    (b"name,phone,lat,lon,on_duty\nAda,+15550000001,52,13,perhaps\n", "on_duty"),
    (b"name,phone,lat,lon,channel\nAda,+15550000001,52,13,fax\n", "channel"),
]


async def test_unreadable_file_is_reported_and_writes_nothing(tmp_path: Path):
    async with a_field(tmp_path, work=False) as field:
        for text, says in UNREADABLE:
            reply = await imported(field, text)
            problem(reply, 422, "invalid_value")
            assert says in reply.text, text[:80]
        assert (await field.rig.ask(None, "/technicians"))["rows"] == []


async def test_body_of_another_type_is_no_import(tmp_path: Path):
    async with a_field(tmp_path, work=False) as field:
        reply = await call(field, "POST", "/import", {"name": "Ada"})
        assert reply.status_code == 415


async def test_technician_removed_while_asked_keeps_his_answer_and_is_asked_no_more(
    tmp_path: Path,
):
    async with a_field(tmp_path, offer_timeout="1h") as field:
        await field.technician("ada", "silent", km=1)
        await field.technician("bob", "silent", km=2)
        first = await field.ask()
        await field.asks(first["id"], "ada")
        # As by a removal that read the lock before this offer held it.
        async with field.directory.change() as session:
            await session.delete(await session.get_one(Technician, "ada"))
        problem(await field.say(first["id"], "accept", "ada"), 404, "unknown_record")
        second = await field.ask()
        told = await field.asks(second["id"], "bob")
        assert told["left"] == []
        ref = f"{first['id']}:1"
        await field.app.signal_async(ref, event="key", final="accepted", candidate="ada")
        told = await field.becomes(first["id"], "assigned")
        assert told["technician"] == "ada"
        assert (await field.move(first["id"], "complete")).json()["status"] == "completed"
        await field.settled("offer_ended", 1)


async def test_technician_who_moved_too_far_is_skipped_at_his_turn(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h", lines={}, radius_km=50) as field:
        await field.technician("ada", km=1)
        await field.technician("bob", km=2)
        sent = await field.ask()
        await field.asks(sent["id"], "ada")
        await field.change("bob", lat=53.5)
        await field.say(sent["id"], "decline", "ada")
        told = await field.becomes(sent["id"], "pending")
        assert [one["said"] for one in told["asked"]] == ["declined", "unfit"]
        assert "km away" in told["asked"][1]["reason"]


@pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")  # raised by apprise's own imports
@pytest.mark.parametrize("what", ["technicians", "users"])
async def test_only_definers_change_the_directory_and_a_scoped_token_sees_nothing(
    tmp_path: Path, what: str
):
    async with a_field(tmp_path, tokens=True, work=False) as field:
        await field.technician("ada")
        await field.user("ada", "json://user:secret@example.org")
        body = {**ADA, "phone": "+4915550109"} if what == "technicians" else {"name": "Bo"}
        moves: list[tuple[str, str, Any]] = [
            ("PATCH", "/ada", {"name": "Ada"}),
            ("POST", "", body),
            ("DELETE", "/nobody", None),
        ]
        scoped = [
            await field.rig.token(Role.ADMIN, tenants=["acme"]),
            await field.rig.token(Role.ADMIN, lanes=["mine"]),
        ]
        for who in (*Role, None, *scoped):
            for path in ("", "/ada"):
                reply = await field.rig.call(who, "GET", f"/{what}{path}")
                if who is None:
                    problem(reply, 401, "unauthenticated")
                elif isinstance(who, Role) and Permission.OBSERVE in ROLES[who]:
                    assert reply.status_code == 200, (who, reply.text)
                    may = Permission.DEFINE in ROLES[who]
                    assert ("secret" in reply.text) == (may and what == "users")
                else:
                    problem(reply, 403, "forbidden")
            for method, path, body_ in moves:
                reply = await field.rig.call(who, method, f"/{what}{path}", body_)
                if isinstance(who, Role) and Permission.DEFINE in ROLES[who]:
                    assert reply.status_code in {200, 201, 404, 409}, reply.text
                else:
                    assert reply.status_code in {401, 403}, (who, method, reply.text)
            reply = await field.rig.call(
                who, "POST", f"/{what}/import", content=b"name\n", headers=CSV
            )
            may = isinstance(who, Role) and Permission.DEFINE in ROLES[who]
            assert (reply.status_code in {401, 403}) != may, (who, reply.text)
