"""Every route, for every role, tenant and lane: who may call it is one table."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from enum import Enum, auto
from typing import Any, NamedTuple
from uuid import uuid4

import httpx
import pytest
from fastapi import APIRouter
from fastapi.routing import APIRoute

from headway.contract.definitions import DefineRequest, RevokeToken
from headway.contract.tokens import Role
from headway.core.errors import InvariantBroken
from headway.runtime.token_text import new_token
from headway.server.access.permissions import ROLES, Permission
from headway.server.access.policy import policy_of
from headway.server.build import build
from headway.server.options import ServerOptions
from headway.server.routes.catalogue import ROUTERS
from headway.server.service import Service
from headway.stores import open_store
from tests.server.problems import problem
from tests.server.rig import Rig, serving


class Reach(Enum):
    """What a token that is scoped meets."""

    JOB = auto()
    """The job of the path: another's is unknown."""
    WHOLE = auto()
    """The whole store: forbidden to those scoped to tenants or lanes."""
    LANES = auto()
    """What is told by lane: forbidden to those scoped to tenants, cut to the lanes of others."""
    GATE = auto()
    """What jobs of all share: forbidden to those scoped to tenants or lanes."""
    ENTRY = auto()
    """The entry of the path, by the tenant and lane of its jobs: another's is unknown."""
    BODY = auto()
    """What the body or query names; tested by itself."""
    OPEN = auto()
    """Nothing that belongs to anybody."""


class Expected(NamedTuple):
    may: Permission | None
    reach: Reach


READ, SEND, ACT = Permission.READ, Permission.SEND, Permission.ACT
OBSERVE, DEFINE, TOKENS = Permission.OBSERVE, Permission.DEFINE, Permission.TOKENS

EXPECTED = {
    "POST /v1/jobs": Expected(SEND, Reach.BODY),
    "GET /v1/jobs": Expected(READ, Reach.BODY),
    "GET /v1/jobs/{id}": Expected(READ, Reach.JOB),
    "GET /v1/jobs/{id}/why": Expected(READ, Reach.JOB),
    "POST /v1/jobs/{id}/cancel": Expected(ACT, Reach.JOB),
    "POST /v1/jobs/{id}/retry": Expected(ACT, Reach.JOB),
    "POST /v1/jobs/{id}/run-now": Expected(ACT, Reach.JOB),
    "POST /v1/jobs/{id}/edit": Expected(ACT, Reach.JOB),
    "POST /v1/jobs/{id}/succeed": Expected(ACT, Reach.JOB),
    "POST /v1/jobs/{id}/kill": Expected(ACT, Reach.JOB),
    "POST /v1/moves": Expected(ACT, Reach.BODY),
    "DELETE /v1/permits": Expected(ACT, Reach.BODY),
    "GET /v1/lanes": Expected(OBSERVE, Reach.LANES),
    "GET /v1/lanes/{name:path}": Expected(OBSERVE, Reach.LANES),
    "PUT /v1/lanes/{name:path}": Expected(DEFINE, Reach.GATE),
    "DELETE /v1/lanes/{name:path}": Expected(DEFINE, Reach.GATE),
    "POST /v1/lanes/{name:path}/pause": Expected(DEFINE, Reach.GATE),
    "POST /v1/lanes/{name:path}/resume": Expected(DEFINE, Reach.GATE),
    "GET /v1/gates": Expected(OBSERVE, Reach.WHOLE),
    "GET /v1/gates/{name:path}": Expected(OBSERVE, Reach.WHOLE),
    "PUT /v1/gates/{name:path}": Expected(DEFINE, Reach.GATE),
    "PATCH /v1/gates/{name:path}": Expected(DEFINE, Reach.GATE),
    "DELETE /v1/gates/{name:path}": Expected(DEFINE, Reach.GATE),
    "GET /v1/closures": Expected(OBSERVE, Reach.WHOLE),
    "POST /v1/closures": Expected(DEFINE, Reach.GATE),
    "DELETE /v1/closures/{gate:path}": Expected(DEFINE, Reach.GATE),
    "GET /v1/timetable": Expected(OBSERVE, Reach.LANES),
    "GET /v1/timetable/{name:path}": Expected(OBSERVE, Reach.LANES),
    "PUT /v1/timetable/{name:path}": Expected(DEFINE, Reach.BODY),
    "DELETE /v1/timetable/{name:path}": Expected(DEFINE, Reach.ENTRY),
    "POST /v1/timetable/{name:path}/enable": Expected(DEFINE, Reach.ENTRY),
    "POST /v1/timetable/{name:path}/disable": Expected(DEFINE, Reach.ENTRY),
    "GET /v1/workers": Expected(OBSERVE, Reach.WHOLE),
    "GET /v1/stats": Expected(OBSERVE, Reach.WHOLE),
    "GET /v1/trail": Expected(OBSERVE, Reach.WHOLE),
    "GET /v1/audit": Expected(OBSERVE, Reach.WHOLE),
    "GET /v1/tokens": Expected(TOKENS, Reach.BODY),
    "POST /v1/tokens": Expected(TOKENS, Reach.BODY),
    "DELETE /v1/tokens/{id}": Expected(TOKENS, Reach.BODY),
    "POST /v1/tokens/{id}/rotate": Expected(TOKENS, Reach.BODY),
    "GET /v1/me": Expected(READ, Reach.OPEN),
    "POST /v1/claims": Expected(Permission.WORK, Reach.BODY),
    "POST /v1/settlements": Expected(Permission.WORK, Reach.BODY),
    "POST /v1/leases": Expected(Permission.WORK, Reach.BODY),
    "POST /v1/signals/{key:path}": Expected(Permission.SIGNAL, Reach.BODY),
    "GET /events": Expected(OBSERVE, Reach.WHOLE),
    "GET /metrics": Expected(OBSERVE, Reach.WHOLE),
    "POST /hooks/{provider}": Expected(None, Reach.OPEN),
    "GET /healthz": Expected(None, Reach.OPEN),
    "GET /readyz": Expected(None, Reach.OPEN),
}

SUBJECTS: dict[str, Any] = {
    "PUT /v1/gates/{name:path}": {"kind": "slots", "capacity": 1},
    "PATCH /v1/gates/{name:path}": {"capacity": 1},
    "PUT /v1/lanes/{name:path}": {"target": "5s"},
    "POST /v1/closures": {"gate": "theirs"},
    "POST /v1/jobs/{id}/edit": {"priority": 1},
}
"""Bodies of routes that look at what they are asked only when it is whole."""

MINE, THEIRS = "mine", "theirs"


def all_routes() -> Iterator[tuple[str, APIRoute]]:
    for router in ROUTERS:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            for method in route.methods:
                yield f"{method} {route.path}", route


def calls(name: str, **filled: str) -> tuple[str, str]:
    """The method and path of a route, its placeholders filled in."""
    method, path = name.split(" ")
    for word in ("id", "name:path", "gate:path", "key:path", "provider"):
        path = path.replace(f"{{{word}}}", filled.get(word.partition(":")[0], "theirs"))
    return method, path


async def status(rig: Rig, who: Role | str | None, name: str, **filled: str) -> httpx.Response:
    """What a route answers; of one that never ends, its beginning."""
    method, path = calls(name, **{"id": str(uuid4()), **filled})
    headers = {}
    if who is not None:
        text = rig.tokens[who] if isinstance(who, Role) else who
        headers["Authorization"] = f"Bearer {text}"
    body = SUBJECTS.get(name, {}) if method in {"POST", "PUT", "PATCH"} else None
    async with rig.http.stream(method, path, json=body, headers=headers) as reply:
        if reply.status_code != 200:
            await reply.aread()
        return reply


@asynccontextmanager
async def a_server() -> AsyncIterator[Rig]:
    async with serving() as rig:
        gate = {"kind": "slots", "capacity": 1}
        await rig.call(Role.ADMIN, "PUT", "/v1/gates/theirs", gate)
        job = {"kind": "noop", "tenant": THEIRS, "lane": THEIRS}
        entry = {"schedule": "every 1h", "job": job}
        await rig.call(Role.ADMIN, "PUT", "/v1/timetable/theirs", entry)
        yield rig


def test_the_table_has_every_route_and_each_says_what_the_table_says():
    found = {name: policy_of(route) for name, route in all_routes()}
    assert {name: policy.permission for name, policy in found.items() if policy} == {
        name: expected.may for name, expected in EXPECTED.items()
    }


async def test_a_route_without_a_policy_is_not_served():
    async def open_door() -> None: ...

    class Careless:
        name = "careless"
        routers = (APIRouter(),)

        async def start(self, service: Service) -> None: ...

    Careless.routers[0].get("/v1/open")(open_door)
    store = open_store("memory://")
    with pytest.raises(InvariantBroken, match="names no policy"):
        build(Service(store, ServerOptions()), [Careless()])
    await store.close()


async def test_nobody_gets_in_without_a_token_that_lives():
    async with a_server() as rig:
        revoked = await rig.token(Role.ADMIN)
        item = RevokeToken(id=revoked.split("_")[1])
        await rig.store.define(DefineRequest(items=(item,), author="the test"))
        ended = await rig.token(Role.ADMIN, expires_at=1)
        wrong = rig.tokens[Role.ADMIN][:-1] + ("A" if rig.tokens[Role.ADMIN][-1] != "A" else "B")
        bad = (None, "x", "hw_", revoked, ended, wrong, new_token().text)
        for name, expected in EXPECTED.items():
            for token in bad if expected.may is not None else ():
                reply = await status(rig, token, name)
                problem(reply, 401, "unauthenticated")
                assert reply.headers["www-authenticate"] == "Bearer", name


@pytest.mark.parametrize("role", Role)
async def test_a_role_may_do_what_the_table_says_and_nothing_else(role: Role):
    async with a_server() as rig:
        may = set((await rig.ask(role, "/v1/me"))["may"])
        for name, expected in EXPECTED.items():
            reply = await status(rig, role, name)
            if expected.may is None or expected.may in may:
                # Public routes look at their callers by themselves.
                refusals = {401, 403} if expected.may is not None else {403}
                assert reply.status_code not in refusals, (name, reply.text)
            else:
                problem(reply, 403, "forbidden")


def test_each_role_has_these_permissions_and_no_others():
    signal, work = Permission.SIGNAL, Permission.WORK
    assert {
        Role.VIEWER: {READ, OBSERVE},
        Role.PRODUCER: {SEND, READ, signal},
        Role.WORKER: {work, READ, signal},
        Role.OPERATOR: {SEND, READ, signal, ACT, OBSERVE, DEFINE},
        Role.ADMIN: set(Permission),
    } == ROLES


@pytest.mark.parametrize(
    ("role", "scope"),
    # A worker's token is never scoped to tenants.
    [
        (role, scope)
        for role in Role
        for scope in ("tenants", "lanes")
        if (role, scope) != (Role.WORKER, "tenants")
    ],
)
async def test_what_is_anothers_is_unknown_or_forbidden_in_every_route(role: Role, scope: str):
    async with a_server() as rig:
        token = await rig.token(role, name="scoped", **{scope: [MINE]})
        may = set((await rig.ask(token, "/v1/me"))["may"])
        theirs = await rig.send(tenant=THEIRS, lane=THEIRS, due="1h")
        before = await rig.ask(Role.ADMIN, f"/v1/jobs/{theirs}")
        for name, expected in EXPECTED.items():
            if expected.may not in may:
                continue
            reply = await status(rig, token, name, id=theirs)
            told = (name, reply.status_code)
            match expected.reach:
                case Reach.JOB:
                    assert problem(reply, 404, "unknown_job"), told
                case Reach.ENTRY:
                    assert problem(reply, 404, "unknown_entry"), told
                case Reach.GATE | Reach.WHOLE:
                    assert reply.status_code == 403, told
                case Reach.LANES if scope == "tenants":
                    assert reply.status_code == 403, told
                case _:
                    pass
        assert await rig.ask(Role.ADMIN, f"/v1/jobs/{theirs}") == before
        entries = await rig.ask(Role.ADMIN, "/v1/timetable")
        assert [one["spec"]["enabled"] for one in entries["rows"]] == [True]
