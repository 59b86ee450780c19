"""One table lists every route with the roles, tenants and lanes that may call it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, nullcontext
from enum import Enum, auto
from typing import Any, NamedTuple, get_args
from uuid import uuid4

import httpx
import pytest
from fastapi import APIRouter
from fastapi.routing import APIRoute
from pydantic import BaseModel

from headway.contract.definitions import DefineRequest, RevokeToken, Role
from headway.core.errors import Forbidden, InvariantBroken
from headway.core.hidden import hidden_text
from headway.runtime.tokens import new_token
from headway.server.access import Observer, policy_of
from headway.server.build import ROUTERS, build
from headway.server.caller import ROLES, Caller, Permission
from headway.server.hooks.signals import SignalBody
from headway.server.service import ServerOptions, Service
from headway.stores import open_store
from headway.systems.lanes import LanesSystem
from headway.systems.lanes.routes import ROUTES as LANE_ROUTES
from tests.server.problems import problem
from tests.server.rig import Rig, serving


class Reach(Enum):
    """What a scoped token is allowed to reach."""

    JOB = auto()
    """The job in the path: a job outside the scope is unknown."""
    WHOLE = auto()
    """The whole store: forbidden to tokens scoped to tenants or lanes."""
    LANES = auto()
    """Data by lane: forbidden to tokens scoped to tenants, filtered for tokens scoped to lanes."""
    GATE = auto()
    """Shared by all jobs: forbidden to tokens scoped to tenants or lanes."""
    ENTRY = auto()
    """The entry in the path, by the tenant and lane of its jobs: others are unknown."""
    BODY = auto()
    """The names in the body or query; tested separately."""
    OPEN = auto()
    """Nothing that belongs to a tenant or lane."""


class Expected(NamedTuple):
    may: Permission | None
    reach: Reach


READ, SEND, ACT = Permission.READ, Permission.SEND, Permission.ACT
OBSERVE, DEFINE, TOKENS = Permission.OBSERVE, Permission.DEFINE, Permission.TOKENS

EXPECTED = {
    "POST /v1/jobs": Expected(SEND, Reach.BODY),
    "GET /v1/jobs": Expected(READ, Reach.BODY),
    "GET /v1/flows": Expected(READ, Reach.BODY),
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
    "POST /v1/timetable/{name:path}/fire": Expected(SEND, Reach.ENTRY),
    "GET /v1/workers": Expected(OBSERVE, Reach.WHOLE),
    "GET /v1/stats": Expected(OBSERVE, Reach.WHOLE),
    "GET /v1/overview": Expected(OBSERVE, Reach.WHOLE),
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
"""Bodies of routes that authorise a request only once its body is complete."""

MINE, THEIRS = "mine", "theirs"


def all_routes() -> Iterator[tuple[str, APIRoute]]:
    for router in ROUTERS:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            for method in route.methods:
                yield f"{method} {route.path}", route


def calls(name: str, **filled: str) -> tuple[str, str]:
    """Return the method and path of a route, with placeholders filled in."""
    method, path = name.split(" ")
    for word in ("id", "name:path", "gate:path", "key:path", "provider"):
        path = path.replace(f"{{{word}}}", filled.get(word.partition(":")[0], "theirs"))
    return method, path


async def status(rig: Rig, who: Role | str | None, name: str, **filled: str) -> httpx.Response:
    """Return a route's reply, or the start of a reply that never ends."""
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


def test_table_has_every_route_and_each_matches_it():
    found = {name: policy_of(route) for name, route in all_routes()}
    assert {name: policy.permission for name, policy in found.items() if policy} == {
        name: expected.may for name, expected in EXPECTED.items()
    }


async def test_route_without_a_policy_is_not_served():
    async def open_door() -> None: ...

    class Careless:
        name = "careless"
        routers = (APIRouter(),)

        async def start(self, service: Service) -> None: ...

    Careless.routers[0].get("/v1/open")(open_door)
    store = open_store("memory://")
    with pytest.raises(InvariantBroken, match="has no policy"):
        build(Service(store, ServerOptions()), [Careless()])
    await store.close()


@pytest.mark.parametrize(
    ("path", "taken"),
    [
        ("/queue/{that}/stats", True),
        ("/queue/{that:str}/stats", True),
        ("/queue/{that:path}/stats", False),
    ],
)
async def test_path_of_two_systems_is_not_served(path: str, taken: bool):
    async def read(that: str, caller: Observer) -> None: ...

    class Other:
        name = "other"

        def __init__(self, path: str) -> None:
            self.routers = (APIRouter(),)
            self.routers[0].get(path)(read)

        async def start(self, service: Service) -> None: ...

    store = open_store("memory://")
    systems = [Other("/queue/{this}/stats"), Other(path)]
    message = rf"GET {re.escape(path)} is already the path of another route"
    with pytest.raises(InvariantBroken, match=message) if taken else nullcontext():
        build(Service(store, ServerOptions()), systems)
    await store.close()


async def test_request_without_a_valid_token_is_refused():
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


async def test_refusal_says_what_is_missing_and_the_log_hides_nothing_of_it():
    async with a_server() as rig:
        refused = await rig.call(Role.WORKER, "POST", "/v1/jobs", {"kind": "noop"})
        detail = refused.json()["detail"]
        assert detail.endswith("does not have the permission 'send'")
        bare = {"Authorization": rig.tokens[Role.ADMIN]}
        detail = (await rig.call(None, "GET", "/v1/me", headers=bare)).json()["detail"]
        assert detail == "the Authorization header does not begin with Bearer"
        assert hidden_text(detail) == detail


@pytest.mark.parametrize("role", Role)
async def test_role_may_do_what_the_table_says_and_nothing_else(role: Role):
    async with a_server() as rig:
        may = set((await rig.ask(role, "/v1/me"))["may"])
        for name, expected in EXPECTED.items():
            reply = await status(rig, role, name)
            if expected.may is None or expected.may in may:
                # Public routes authenticate their callers themselves.
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
async def test_foreign_things_are_unknown_or_forbidden_in_every_route(role: Role, scope: str):
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
                case Reach.LANES if "{name:path}" in name:
                    assert reply.status_code in {403, 404}, told
                case _:
                    pass
        assert await rig.ask(Role.ADMIN, f"/v1/jobs/{theirs}") == before
        entries = await rig.ask(Role.ADMIN, "/v1/timetable")
        assert [one["spec"]["enabled"] for one in entries["rows"]] == [True]


# -------------------------------------------------------------------------- parts of a body


_WORK = "kind args lane priority tenant subject candidates"
_OPTIONS = "retry timeout start_within on_deadline reconcile reconcile_within on_final keep key_for"
_POLICY = f"gates stage {_OPTIONS} cascade on_accepted"
_CLAIM = "worker lanes order max free lease wait request after"
_PULLED = "worker job_id run tenant"
_RUN = "job run outcome"

OWN = {
    "JobBody": f"{_WORK} {_POLICY} due expires key id",
    "RecurringBody": f"{_WORK} {_POLICY}",
    "GateBody": "gate name zone amount hold",
    "RetryBody": "attempts base factor cap jitter",
    "OptionsBody": _OPTIONS,
    "FollowUpBody": "kind lane states policy",
    "AcceptedBody": "kind lane policy",
    "ReasonBody": "reason",
    "EditBody": "reason args priority due",
    "MovesBody": "reason args priority due verb ids filter limit dry",
    "FilterBody": "lane tenant kind subject key states finished_since",
    "LaneBody": "concurrency lease target fair weights max_backlog",
    "UntilBody": "reason after until",
    "SlotsBody": "kind capacity shared",
    "RateBody": "kind limit per shared",
    "PoolBody": "kind members strategy shared",
    "HoursBody": "kind hours days tz exceptions",
    "GateNumbersBody": "reason capacity limit per members",
    "ClosureBody": "reason after until gate",
    "PermitBody": "reason gate job",
    "EntryBody": "schedule tz anchor misfire misfire_cap overlap enabled",
    "TokenBody": "name roles tenants lanes closes expires",
    "RotateBody": "grace",
    "ClaimBody": _CLAIM,
    "LaneWeightBody": "name weight",
    "SettlementBody": "worker outcomes",
    "SucceededBody": f"{_RUN} result",
    "FailedBody": f"{_RUN} error after until",
    "DeadBody": f"{_RUN} reason error",
    "SnoozedBody": f"{_RUN} after until reason",
    "NextStageBody": f"{_RUN} stage gates",
    "ReleasedBody": f"{_RUN} reason",
    "HandedOverBody": f"{_RUN} key timeout",
    "KnownAsBody": f"{_RUN} key",
    "ReturnedBody": f"{_RUN} error",
    "GaveBackBody": f"{_RUN} gate",
    "UnfitBody": f"{_RUN} reason",
    "CloseBody": "gate after until reason",
    "LeaseBody": "worker running request lease lanes name leaving",
    "RunningBody": "job run progress",
    "SignalBody": "event final progress note extend body reason after candidate offer known_as",
    "EnqueueBody": "lane type payload job_id due tenant",
    "PullBody": _CLAIM,
    "AckBody": f"{_PULLED} result",
    "FailBody": f"{_PULLED} error after dead",
    "ExtendBody": f"{_PULLED} lease progress",
    "LanesRetryBody": "job_ids lane type payload limit reason tenant",
}
"""Parts of each body for which the route's own permission is enough."""

SETTLEMENT, ENTRY = "POST /v1/settlements", "PUT /v1/timetable/{name:path}"
NEEDS = {
    "then": (SEND, SETTLEMENT),
    "close": (DEFINE, SETTLEMENT),
    "job": (SEND, ENTRY),
}
"""Parts that need a further permission: that of the route with the same effect."""


def body_models() -> dict[str, type[BaseModel]]:
    """Return the models of all bodies, and all models nested in them, by name."""
    found: dict[str, type[BaseModel]] = {"SignalBody": SignalBody}
    routers = (*ROUTERS, LANE_ROUTES)
    for router in routers:
        for route in router.routes:
            if isinstance(route, APIRoute) and route.body_field is not None:
                _gather(route.body_field.field_info.annotation, found)
    return found


def _gather(annotation: Any, found: dict[str, type[BaseModel]]) -> None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        system = "Lanes" if ".systems.lanes." in annotation.__module__ else ""
        name = annotation.__name__
        if system and name in found and found[name] is not annotation:
            name = system + name
        if name not in found:
            found[name] = annotation
            for field in annotation.model_fields.values():
                _gather(field.annotation, found)
        assert found[name] is annotation, name
    else:
        for one in get_args(annotation):
            _gather(one, found)


def test_every_part_of_a_body_is_covered_by_a_permission():
    carried = {name: {*model.model_fields} for name, model in body_models().items()}
    outcomes = {name for name, fields in carried.items() if "outcome" in fields}
    besides = {name: {"then", "close"} for name in outcomes} | {"EntryBody": {"job"}}
    assert carried == {
        name: {*fields.split()} | besides.get(name, set()) for name, fields in OWN.items()
    }
    assert {part for parts in besides.values() for part in parts} == {*NEEDS}


@asynccontextmanager
async def a_run(token: str, rig: Rig, **more: Any) -> AsyncIterator[dict[str, Any]]:
    """Claim a run in the lane `mine` with a token; the run stays held."""
    job = await rig.send(lane=MINE, **more)
    body = {"worker": "w", "lanes": [MINE]}
    claimed = await rig.call(token, "POST", "/v1/claims", body)
    assert [one["id"] for one in claimed.json()["jobs"]] == [job]
    yield {"job": job, "run": 1, "outcome": "succeeded"}


async def said_with(
    rig: Rig, token: str, part: str, run: dict[str, Any] | None, value: Any
) -> httpx.Response:
    """Return the reply to a body that contains one part."""
    _, route = NEEDS[part]
    method, path = calls(route)
    body = {"schedule": "every 1h", part: value}
    if run is not None:
        body = {"worker": "w", "outcomes": [{**run, part: value}]}
    return await rig.call(token, method, path, body)


PART_VALUES: dict[str, Any] = {
    "then": [{"kind": "noop", "lane": MINE}],
    "close": [{"gate": "theirs", "after": "1m"}],
    "job": {"kind": "noop"},
}


@pytest.mark.parametrize("part", NEEDS)
async def test_part_of_a_body_needs_the_permission_of_its_own_route(part: str):
    needed, route = NEEDS[part]
    async with a_server() as rig:
        for role in Role:
            token = rig.tokens[role]
            may = set((await rig.ask(role, "/v1/me"))["may"])
            if EXPECTED[route].may not in may:
                continue
            if route == ENTRY:
                reply = await said_with(rig, token, part, None, PART_VALUES[part])
                assert (reply.status_code == 200) == (needed in may), reply.text
                continue
            async with a_run(token, rig) as run:
                reply = await said_with(rig, token, part, run, PART_VALUES[part])
                if needed in may:
                    assert reply.json() == {"verdicts": ["done"]}
                    continue
                problem(reply, 403, "forbidden")
                assert (await rig.ask(token, f"/v1/jobs/{run['job']}"))["state"] == "running"
                jobs = (await rig.ask(token, "/v1/jobs", lane=MINE))["rows"]
                assert [job["id"] for job in jobs] == [run["job"]]
                gate = await rig.ask(Role.ADMIN, "/v1/gates/theirs")
                assert gate["closed_until"] is None


async def test_worker_that_may_send_creates_follow_ups_in_its_lanes():
    async with a_server() as rig:
        token = await rig.token(Role.WORKER, Role.PRODUCER, lanes=[MINE])
        async with a_run(token, rig) as run:
            reply = await said_with(rig, token, "then", run, PART_VALUES["then"])
            assert reply.json() == {"verdicts": ["done"]}


@pytest.mark.parametrize(
    ("closes", "gate", "may"),
    [
        ("rate:*", "rate:twilio", True),
        ("rate:twilio", "rate:twilio", True),
        ("rate:*", "theirs", False),
        ("rate:*", "all", False),
        ("*", "theirs", True),
        ("*", "all", False),
        ("*", f"lane:{MINE}", False),
        ("*", "tenant:acme", False),
        ("*", "kind:noop", False),
        ("a*", "all", False),
        ("[l]ane:*", f"lane:{MINE}", False),
        ("all", "all", True),
        ("kind:*", "kind:noop", True),
    ],
)
@pytest.mark.parametrize("lanes", [None, (MINE,)])
def test_worker_closes_only_the_gates_that_its_token_names(
    closes: str, gate: str, may: bool, lanes: tuple[str, ...] | None
):
    caller = Caller(id="w", name="w", may=ROLES[Role.WORKER], lanes=lanes, closes=(closes,))
    with nullcontext() if may else pytest.raises(Forbidden, match="--close"):
        caller.check_closing(gate)


async def test_granted_closing_is_only_for_settlements():
    async with a_server() as rig:
        token = await rig.token(Role.WORKER, lanes=[MINE], closes=["t*"])
        assert (await rig.ask(token, "/v1/me"))["closes"] == ["t*"]
        # The route would replace and remove closings made by an operator.
        for method, path in (("POST", "/v1/closures"), ("DELETE", "/v1/closures/theirs")):
            reply = await rig.call(token, method, path, {"gate": "theirs", "after": "1m"})
            problem(reply, 403, "forbidden")
        async with a_run(token, rig) as run:
            reply = await said_with(rig, token, "close", run, PART_VALUES["close"])
            assert reply.json() == {"verdicts": ["done"]}


async def test_token_passes_on_only_the_closings_it_has_itself():
    async with a_server() as rig:
        some = await rig.token(Role.ADMIN, lanes=[MINE], closes=["rate:*"])
        body = {"name": "w", "roles": ["worker"], "lanes": [MINE]}
        for closes, status_ in ((["rate:*"], 201), (["*"], 403), (["rate:*", "x"], 403)):
            reply = await rig.call(some, "POST", "/v1/tokens", {**body, "closes": closes})
            assert reply.status_code == status_, reply.text
        reply = await rig.call(Role.ADMIN, "POST", "/v1/tokens", {**body, "closes": ["*"]})
        assert reply.status_code == 201
        shown = (await rig.ask(Role.ADMIN, "/v1/tokens"))["rows"]
        assert ["*"] in [one["closes"] for one in shown]


_NOOP = {"kind": "noop"}
_ADDRESSED = {
    "JobBody.lane": ("POST", "/v1/jobs", {**_NOOP, "lane": THEIRS}),
    "JobBody.tenant": ("POST", "/v1/jobs", {**_NOOP, "tenant": THEIRS}),
    "FollowUpBody.lane": (
        "POST",
        "/v1/jobs",
        {**_NOOP, "lane": MINE, "on_final": {"kind": "x", "lane": THEIRS}},
    ),
    "AcceptedBody.lane": (
        "POST",
        "/v1/jobs",
        {
            **_NOOP,
            "lane": MINE,
            "candidates": ["ann"],
            "on_accepted": {"kind": "x", "lane": THEIRS},
        },
    ),
    "RecurringBody.lane": (
        "PUT",
        "/v1/timetable/x",
        {"schedule": "every 1h", "job": {**_NOOP, "lane": THEIRS}},
    ),
    "RecurringBody.tenant": (
        "PUT",
        "/v1/timetable/x",
        {"schedule": "every 1h", "job": {**_NOOP, "tenant": THEIRS}},
    ),
    "FilterBody.lane": ("POST", "/v1/moves", {"verb": "kill", "filter": {"lane": THEIRS}}),
    "FilterBody.tenant": ("POST", "/v1/moves", {"verb": "kill", "filter": {"tenant": THEIRS}}),
    "ClosureBody.gate": ("POST", "/v1/closures", {"gate": "all"}),
    "CloseBody.gate": ("POST", "/v1/settlements", {"close": [{"gate": "all"}]}),
    "TokenBody.lanes": (
        "POST",
        "/v1/tokens",
        {"name": "x", "roles": ["viewer"], "lanes": [THEIRS]},
    ),
    "TokenBody.tenants": (
        "POST",
        "/v1/tokens",
        {"name": "x", "roles": ["viewer"], "tenants": [THEIRS]},
    ),
    "ClaimBody.lanes": ("POST", "/v1/claims", {"worker": "w", "lanes": [THEIRS]}),
    "LeaseBody.lanes": ("POST", "/v1/leases", {"worker": "w", "lanes": [THEIRS]}),
    "EnqueueBody.lane": ("POST", "/enqueue", {"lane": THEIRS, "type": "x"}),
    "EnqueueBody.tenant": ("POST", "/enqueue", {"lane": MINE, "type": "x", "tenant": THEIRS}),
    "PullBody.lanes": ("POST", "/pull", {"worker": "w", "lanes": [THEIRS]}),
    "LanesRetryBody.lane": ("POST", "/retry", {"lane": THEIRS}),
    "LanesRetryBody.tenant": ("POST", "/retry", {"type": "x", "tenant": THEIRS}),
}
"""Each part that names a lane, a tenant or a gate, in a request that names one out of scope."""
_BOUND_OTHERWISE = {
    # Gates of the job that is created or held: they must be declared, and only that job uses them.
    "GateBody.gate",
    "GaveBackBody.gate",
    # Gate of a permit whose holder must be visible to the caller.
    "PermitBody.gate",
    # The tenant under which a key is looked up, for a job that its worker must hold.
    "AckBody.tenant",
    "FailBody.tenant",
    "ExtendBody.tenant",
}


def test_every_part_that_names_a_lane_tenant_or_gate_must_be_in_scope():
    naming = {"lane", "lanes", "tenant", "tenants", "gate"}
    found = {
        f"{name}.{field}"
        for name, model in body_models().items()
        for field in naming & {*model.model_fields}
    }
    assert found == _ADDRESSED.keys() | _BOUND_OTHERWISE


@pytest.mark.parametrize("scope", ["lanes", "tenants"])
async def test_part_of_a_body_reaches_no_further_than_its_token(scope: str):
    async with serving(systems=[LanesSystem(())]) as rig:
        token = await rig.token(Role.ADMIN, **{scope: [MINE]})
        for part, (method, path, said) in _ADDRESSED.items():
            if ("tenant" in part) != (scope == "tenants") and "gate" not in part:
                continue
            run = {"job": str(uuid4()), "run": 1, "outcome": "succeeded"}
            is_settled = path == "/v1/settlements"
            body = {"worker": "w", "outcomes": [{**run, **said}]} if is_settled else said
            reply = await rig.call(token, method, path, body)
            assert (reply.status_code, reply.json()["code"]) == (403, "forbidden"), part
