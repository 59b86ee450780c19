"""Every route of this system, for every role, and for scoped tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute

from headway.contract.definitions import Role
from headway.contract.operate import Verb
from headway.server.access import policy_of
from headway.server.caller import ROLES, Permission
from headway.systems.field_service import answering, dispatching, doctor, request_routes
from headway.systems.jobs import act, ref_of
from tests.server.problems import problem
from tests.systems.field_service.field_rig import CUSTOMER, HERE, a_field
from tests.web.rig import signed_in

SEND, READ, ACT, SIGNAL = Permission.SEND, Permission.READ, Permission.ACT, Permission.SIGNAL
OBSERVE, DEFINE = Permission.OBSERVE, Permission.DEFINE

ONE = "/service-requests/{id}"
EXPECTED: dict[str, Permission | None] = {
    "POST /service-requests": SEND,
    "GET /service-requests": READ,
    f"GET {ONE}": READ,
    f"DELETE {ONE}": ACT,
    f"POST {ONE}/accept": SIGNAL,
    f"POST {ONE}/decline": SIGNAL,
    f"POST {ONE}/complete": SIGNAL,
    f"POST {ONE}/assign": ACT,
    f"POST {ONE}/redispatch": ACT,
    "GET /field-service/settings": OBSERVE,
    "PUT /field-service/settings": DEFINE,
    "GET /field-service/doctor": OBSERVE,
    "GET /field-service/live": None,
    "POST /field-service/hooks/{provider}/status": None,
    "POST /field-service/hooks/{provider}/answer": None,
    "POST /field-service/hooks/{provider}/texts": None,
}
ROUTERS = (answering, dispatching, doctor, request_routes)

BODIES: dict[str, Any] = {
    "POST /service-requests": {"customer": CUSTOMER, "position": HERE},
    f"POST {ONE}/accept": {"technician": "ada"},
    f"POST {ONE}/decline": {"technician": "ada"},
    f"POST {ONE}/assign": {"technician": "ada"},
    "PUT /field-service/settings": {},
}


def test_table_has_every_route_and_each_matches_it():
    found: dict[str, Permission | None] = {}
    for one in ROUTERS:
        for route in one.ROUTES.routes:
            assert isinstance(route, APIRoute)
            policy = policy_of(route)
            assert policy is not None
            for method in route.methods:
                found[f"{method} {route.path}"] = policy.permission
    assert found == EXPECTED


@pytest.mark.parametrize("role", [*Role, None])
async def test_role_may_do_what_the_table_says_and_nothing_else(tmp_path: Path, role: Role | None):
    async with a_field(tmp_path, tokens=True, lines={}) as field:
        await field.technician("ada")
        sent = await field.ask()
        await field.asks(sent["id"], "ada")
        for name, permission in EXPECTED.items():
            method, path = name.split(" ")
            path = path.format(id=sent["id"], provider="twilio")
            reply = await field.rig.call(role, method, path, BODIES.get(name))
            if permission is None:
                hooked = "/hooks/" in path
                assert reply.status_code == (401 if hooked else 307), (name, reply.text)
            elif role is None:
                problem(reply, 401, "unauthenticated")
            elif permission in ROLES[role]:
                assert reply.status_code < 300 or reply.status_code == 409, (name, reply.text)
            else:
                problem(reply, 403, "forbidden")


@pytest.mark.parametrize("scope", [{"tenants": ["acme"]}, {"lanes": ["mine"]}])
async def test_token_for_some_tenants_or_other_lanes_sees_and_moves_no_request(
    tmp_path: Path, scope: dict[str, list[str]]
):
    async with a_field(tmp_path, tokens=True, lines={}) as field:
        await field.technician("ada")
        sent = await field.ask()
        before = await field.asks(sent["id"], "ada")
        token = await field.rig.token(Role.OPERATOR, **scope)
        for name, permission in EXPECTED.items():
            if permission is None:
                continue
            method, path = name.split(" ")
            reply = await field.rig.call(
                token, method, path.format(id=sent["id"]), BODIES.get(name)
            )
            if "{id}" in path:
                problem(reply, 404, "unknown_record")
            elif method == "POST" or path.startswith("/field-service"):
                problem(reply, 403, "forbidden")
            else:
                assert reply.json()["rows"] == []
        after = await field.get(sent["id"])
        assert after["offer"]["technician"] == before["offer"]["technician"] == "ada"
        assert len(await field.jobs("offer")) == 1


async def test_token_of_another_lane_creates_no_service_request(tmp_path: Path):
    async with a_field(tmp_path, tokens=True, work=False) as field:
        token = await field.rig.token(Role.PRODUCER, lanes=["mine"])
        args = {
            "customer": {"name": "Eve", "phone": "+14155550199"},
            "position": {"lat": 1, "lon": 1},
            "skills": [],
            "urgency": "normal",
        }
        made = await field.rig.send(
            token, kind="offer", lane="mine", args=args, candidates=["ada"], subject="+14155550199"
        )
        for path in ("/service-requests", "/service-requests?phone=%2B14155550199"):
            assert (await field.rig.call(Role.ADMIN, "GET", path)).json()["rows"] == []
        reply = await field.rig.call(Role.ADMIN, "GET", f"/service-requests/{made}")
        problem(reply, 404, "unknown_record")
        async with signed_in(field.rig, Role.ADMIN) as http:
            assert "Eve" not in (await http.get("/ui/field-service")).text


async def test_token_of_another_lane_ends_no_offer_and_alerts_no_dispatcher(tmp_path: Path):
    async with a_field(tmp_path, tokens=True, lines={}) as field:
        for name in ("ada", "bob"):
            await field.technician(name)
        await field.user("cy", "text:+14155550111")
        sent = (await field.ask())["id"]
        await field.asks(sent, "ada")
        token = await field.rig.token(Role.PRODUCER, lanes=["mine"])
        request = await field.job(sent)
        for offer in (ref_of(request), ""):
            args = {"to": "+14155550199", "text": "", "offer": offer, "stands_ms": 1}
            await field.rig.send(
                token, kind="ring", lane="mine", args=args, subject=sent, expires="1ms"
            )
        eve = {"name": "Eve", "phone": "+14155550199"}
        args = {"customer": eve, "position": {"lat": 1, "lon": 1}}
        await field.rig.send(token, kind="offer", lane="mine", args=args, candidates=["-"])
        (offer,) = await field.jobs("offer", lane="mine")
        await act(field.store, Verb.KILL, offer.id, author="ops")
        await act(field.store, Verb.CANCEL, offer.id, author="ops")
        await field.store.sweep(1_000)
        await field.settled("ring_ended", 2)
        await field.settled("offer_ended", 1)
        await field.asks(sent, "ada")
        assert await field.jobs("alert_dispatcher") == []
        # A review of the request, too, leaves calls in other lanes out.
        assert (await field.say(sent, "decline", "ada")).status_code == 200
        await field.asks(sent, "bob")
        reviews = await field.settled("offer_review", 3)
        assert [one.attempt for one in reviews if one.attempt != 1] == []


async def test_why_of_a_request_names_no_job_of_another_lane(tmp_path: Path):
    async with a_field(tmp_path, tokens=True, work=False) as field:
        other = await field.rig.send(lane="other")
        claim = {"worker": "w", "lanes": "other"}
        assert (await field.rig.call(Role.WORKER, "POST", "/v1/claims", claim)).json()["jobs"]
        await field.technician("ada")
        sent = await field.ask()
        path = "/v1/gates/all"
        assert (await field.rig.call(Role.ADMIN, "PATCH", path, {"capacity": 1})).is_success
        token = await field.rig.token(Role.VIEWER, lanes=["offers"])
        path = f"/service-requests/{sent['id']}"
        assert other in (await field.rig.ask(Role.ADMIN, path))["why"]
        why = (await field.rig.ask(token, path))["why"]
        assert other not in why
        assert "held by another's job" in why
