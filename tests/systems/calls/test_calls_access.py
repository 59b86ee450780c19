"""Every route of this system, for every role, and for scoped tokens."""

from __future__ import annotations

from enum import Enum, auto
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from fastapi.routing import APIRoute

from headway.contract.definitions import Role
from headway.contract.operate import Verb
from headway.contract.views import JobsQuery
from headway.core.state import State
from headway.server.access import policy_of
from headway.server.caller import ROLES, Permission
from headway.systems.calls.lead import read_args
from headway.systems.jobs import act
from tests.server.problems import problem
from tests.systems.calls.calls_rig import NUMBER, OTHER, PHONE, Calls, calling

SEND, READ = Permission.SEND, Permission.READ
OBSERVE, DEFINE = Permission.OBSERVE, Permission.DEFINE


class Reach(Enum):
    """What a scoped token is allowed to reach."""

    LEAD = auto()
    """The lead in the path: a lead outside the scope is unknown."""
    WHOLE = auto()
    """Shared by all resellers: forbidden to scoped tokens."""
    ROWS = auto()
    """Rows, without those outside the scope."""
    BODY = auto()
    """A lead in the body: forbidden if it is outside the scope."""
    OPEN = auto()
    """Authenticated by other means."""


class Expected(NamedTuple):
    may: Permission | None
    reach: Reach


EXPECTED = {
    "POST /leads": Expected(SEND, Reach.BODY),
    "GET /leads": Expected(READ, Reach.ROWS),
    "GET /leads/outcomes": Expected(READ, Reach.ROWS),
    "GET /leads/{id}": Expected(READ, Reach.LEAD),
    "POST /leads/{id}/dispatch-now": Expected(SEND, Reach.LEAD),
    "DELETE /leads/{id}": Expected(SEND, Reach.LEAD),
    "GET /numbers": Expected(OBSERVE, Reach.WHOLE),
    "POST /numbers": Expected(DEFINE, Reach.WHOLE),
    "POST /numbers/import": Expected(DEFINE, Reach.WHOLE),
    "GET /numbers/{number}": Expected(OBSERVE, Reach.WHOLE),
    "PATCH /numbers/{number}": Expected(DEFINE, Reach.WHOLE),
    "DELETE /numbers/{number}": Expected(DEFINE, Reach.WHOLE),
    "GET /templates": Expected(OBSERVE, Reach.WHOLE),
    "GET /templates/{name}": Expected(OBSERVE, Reach.WHOLE),
    "PUT /templates/{name}": Expected(DEFINE, Reach.WHOLE),
    "DELETE /templates/{name}": Expected(DEFINE, Reach.WHOLE),
    "GET /calls/migration": Expected(OBSERVE, Reach.WHOLE),
    "PUT /calls/migration": Expected(DEFINE, Reach.WHOLE),
    "GET /calls/migration/shadow": Expected(OBSERVE, Reach.WHOLE),
    "POST /calls/hooks/{provider}": Expected(None, Reach.OPEN),
}

LEAD = {"phone": PHONE, "tz": "Europe/Berlin", "reseller": "globex", "next_attempt_at": "1d"}
BODIES: dict[str, Any] = {
    "POST /leads": LEAD,
    "POST /numbers": {"number": OTHER, "provider": "twilio", "maximum_channels": 1},
    "PATCH /numbers/{number}": {"maximum_channels": 2},
    "PUT /templates/{name}": {},
    "PUT /calls/migration": {"mode": "off"},
}
CSV = f"number,provider,maximum_channels\n{OTHER},twilio,1\n"
CSV_HEADERS = {"Content-Type": "text/csv"}
TABLE = {"table": {"own": True}}
"""The routes of a migration exist only with a source table."""


async def one_call(calls: Calls, who: Role | str | None, name: str, lead: str) -> httpx.Response:
    method, path = name.split(" ")
    path = path.format(id=lead, number=NUMBER, name="greeting", provider="twilio")
    if path.endswith("/import"):
        return await calls.rig.call(who, method, path, content=CSV, headers=CSV_HEADERS)
    if who is None:
        return await calls.rig.call(None, method, path, BODIES.get(name))
    return await calls.call(method, path, BODIES.get(name), who=who)


async def test_table_has_every_route_of_calls_with_its_permission(tmp_path: Path) -> None:
    found: dict[str, Permission | None] = {}
    async with calling(tmp_path, work=False, settings=TABLE) as calls:
        for router in calls.system.routers:
            for route in router.routes:
                assert isinstance(route, APIRoute)
                policy = policy_of(route)
                assert policy is not None
                for method in route.methods or ():
                    found[f"{method} {route.path}"] = policy.permission
    assert found == {name: one.may for name, one in EXPECTED.items()}


@pytest.mark.parametrize("role", [*Role, None])
async def test_role_may_do_with_calls_what_the_table_says_and_nothing_else(
    tmp_path: Path, role: Role | None
) -> None:
    async with calling(tmp_path, work=False) as calls:
        await calls.number()
        await calls.template("greeting")
        lead = await calls.lead(reseller="globex", next_attempt_at="1d")
        for name, expected in EXPECTED.items():
            if "/migration" in name:
                continue
            reply = await one_call(calls, role, name, lead)
            if expected.may is None:
                # The provider authenticates itself; a token is not accepted.
                problem(reply, 401, "unauthenticated")
            elif role is None:
                problem(reply, 401, "unauthenticated")
            elif expected.may in ROLES[role]:
                assert reply.status_code < 300, (name, reply.text)
            else:
                problem(reply, 403, "forbidden")


async def test_only_definers_choose_how_an_older_systems_rows_are_migrated(
    tmp_path: Path,
) -> None:
    async with calling(tmp_path, work=False, settings=TABLE) as calls:
        for name in (one for one in EXPECTED if "/migration" in one):
            for role in Role:
                reply = await one_call(calls, role, name, "")
                if EXPECTED[name].may in ROLES[role]:
                    assert reply.status_code not in {401, 403}, (name, role, reply.text)
                else:
                    problem(reply, 403, "forbidden")
            problem(await one_call(calls, None, name, ""), 401, "unauthenticated")
            scoped = await calls.rig.token(Role.OPERATOR, tenants=["acme"])
            problem(await one_call(calls, scoped, name, ""), 403, "forbidden")


@pytest.mark.parametrize("scope", [{"tenants": ["acme"]}, {"lanes": ["mine"]}])
async def test_token_for_another_reseller_or_lane_finds_and_changes_nothing(
    tmp_path: Path, scope: dict[str, Any]
) -> None:
    async with calling(tmp_path, work=False) as calls:
        await calls.number()
        await calls.template("greeting")
        lead = await calls.lead(reseller="globex", next_attempt_at="1d")
        before = await calls.get_lead(lead)
        scoped = await calls.rig.token(Role.OPERATOR, **scope)
        for name, expected in EXPECTED.items():
            if "/migration" in name or expected.reach is Reach.OPEN:
                continue
            reply = await one_call(calls, scoped, name, lead)
            match expected.reach:
                case Reach.LEAD:
                    problem(reply, 404, "unknown_record")
                case Reach.ROWS:
                    told = reply.json()
                    assert told.get("rows", []) == [], name
                    assert told.get("outcomes", {}) == {}, name
                    assert told.get("leads", 0) == 0, name
                case _:
                    problem(reply, 403, "forbidden")
        assert await calls.get_lead(lead) == before
        assert [one["number"] for one in (await calls.ask("/numbers"))["rows"]] == [NUMBER]
        assert len((await calls.ask("/leads"))["rows"]) == 1


async def test_token_of_another_lane_creates_no_lead(tmp_path: Path) -> None:
    async with calling(tmp_path, work=False) as calls:
        token = await calls.rig.token(Role.PRODUCER, lanes=["mine"])
        job = {"kind": "lead", "lane": "mine", "subject": PHONE, "tenant": "globex"}
        made = await calls.rig.send(token, args={"phone": PHONE, "tz": "Europe/Berlin"}, **job)
        for asked in ({}, {"phone": PHONE, "reseller": "globex"}):
            assert (await calls.ask("/leads", **asked))["rows"] == []
        assert (await calls.ask("/leads/outcomes"))["leads"] == 0
        problem(await calls.call("GET", f"/leads/{made}"), 404, "unknown_record")


async def test_lead_with_anothers_row_is_not_called_and_leaves_the_row_as_it_is(
    tmp_path: Path,
) -> None:
    async with calling(tmp_path, settings=TABLE) as calls:
        await calls.number()
        lead = await calls.lead(reseller="globex", next_attempt_at="1d")
        row = read_args((await calls.job(lead)).args).row
        table = calls.system.context.table
        assert table is not None
        before = await table.table.find([row])
        token = await calls.rig.token(Role.OPERATOR, tenants=["acme"])
        args = {"phone": "+14155550199", "tz": "Europe/Berlin", "row": row}
        mine = {"kind": "lead", "tenant": "acme", "args": args}
        called = await calls.rig.send(token, lane="calls", **mine)
        # Nor may one in another lane whose own worker ends it.
        other = await calls.rig.send(token, lane="mine", **mine)
        await act(calls.store, Verb.SUCCEED, other, author="ops")

        async def ended() -> bool:
            query = JobsQuery(lane="calls.after", states=(State.SUCCEEDED,))
            return len((await calls.store.read(query)).rows) == 2

        await calls.until(ended, "both follow-ups")
        assert (await calls.job(called)).state is State.DEAD
        assert calls.calls_to("+14155550199") == []
        assert await table.table.find([row]) == before


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"phone": "sip:ada@example.org", "tz": "UTC"}, "the phone is 'sip:ada@example.org'"),
        ({"phone": "1" * 512, "tz": "UTC"}, "the phone is '111"),
        ({"phone": PHONE, "tz": "Mars/Olympus"}, "there is no time zone 'Mars/Olympus'"),
    ],
)
async def test_lead_that_intake_would_refuse_ends_at_its_checks(
    tmp_path: Path, args: dict[str, str], words: str
) -> None:
    async with calling(tmp_path) as calls:
        await calls.number()
        await calls.template(hours={"spans": "00:00-24:00"})
        token = await calls.rig.token(Role.PRODUCER, tenants=["acme"])
        made = await calls.rig.send(token, kind="lead", lane="calls", tenant="acme", args=args)
        told = await calls.finished(made)
        assert (told["outcome"], told["attempt_count"]) == ("PRECHECK_FAILED", 0)
        assert told["reason"].startswith(f"PRECHECK_FAILED: {words}")


async def test_result_of_another_reseller_is_not_reported_again(tmp_path: Path) -> None:
    keys = {"reporting_keys": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]}
    async with calling(tmp_path, settings=keys) as calls:
        await calls.number()
        # No address of this name exists, so each attempt to report fails and is counted.
        url = "https://receiver.invalid/"
        lead = await calls.lead(reseller="globex", reporting_webhook_url=url)
        await calls.finished(lead)
        token = await calls.rig.token(Role.PRODUCER, tenants=["acme"])
        follow_up = {"job": lead, "state": "succeeded", "reason": ""}
        of = {"kind": "lead_finished", "lane": "calls.after", "tenant": "acme"}
        made = await calls.rig.send(token, args=follow_up, **of)

        async def ran() -> bool:
            job = await calls.job(made)
            return job.run > 0 and job.state in {State.SUCCEEDED, State.SCHEDULED}

        await calls.until(ran, "the follow-up ran")
        job = await calls.job(made)
        assert (job.state, job.stage) == (State.SUCCEEDED, "tell")
