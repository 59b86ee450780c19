"""Scope: what a token limited to some tenants or lanes can create, see and act on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from headway.contract.claims import ClaimRequest
from headway.contract.definitions import Role
from tests.server.problems import problem
from tests.server.rig import Rig, serving


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with serving() as one:
        yield one


async def of_acme(rig: Rig, *roles: Role) -> str:
    return await rig.token(*roles, tenants=["acme"])


# ------------------------------------------------------------------------------------ tenants


async def test_only_tenant_of_a_token_is_filled_in_and_no_other_can_be_named(rig: Rig):
    token = await of_acme(rig, Role.PRODUCER)
    made = await rig.send(token)
    assert (await rig.ask(token, f"/v1/jobs/{made}"))["tenant"] == "acme"
    for tenant in ("", "other"):
        body = {"kind": "noop", "tenant": tenant}
        problem(await rig.call(token, "POST", "/v1/jobs", body), 403, "forbidden")
        problem(await rig.call(token, "POST", "/v1/jobs", [body]), 403, "forbidden")


async def test_token_for_several_tenants_must_name_one(rig: Rig):
    token = await rig.token(Role.PRODUCER, tenants=["acme", "umbrella"])
    problem(await rig.call(token, "POST", "/v1/jobs", {"kind": "noop"}), 422, "invalid_value")
    problem(await rig.call(token, "GET", "/v1/jobs"), 422, "invalid_value")
    made = await rig.send(token, tenant="umbrella")
    listed = await rig.ask(token, "/v1/jobs", tenant="umbrella")
    assert [job["id"] for job in listed["rows"]] == [made]


async def test_listing_shows_only_jobs_of_the_tokens_tenant(rig: Rig):
    token = await of_acme(rig, Role.VIEWER)
    theirs = await rig.send(tenant="other", key="k", subject="s")
    ours = await rig.send(tenant="acme", key="k", subject="s")
    for asked in ({}, {"key": "k"}, {"subject": "s"}, {"lane": "main"}, {"state": "waiting"}):
        found = (await rig.ask(token, "/v1/jobs", **asked))["rows"]
        assert [job["id"] for job in found] == [ours], asked
    reply = await rig.call(token, "GET", "/v1/jobs", params={"tenant": "other"})
    problem(reply, 403, "forbidden")
    problem(await rig.call(token, "GET", f"/v1/jobs/{theirs}"), 404, "unknown_job")


async def test_flows_and_jobs_of_a_worker_or_by_id_are_those_of_the_tokens_tenant_and_lanes(
    rig: Rig,
):
    await rig.call(Role.ADMIN, "PUT", "/v1/gates/phone:{phone}", {"kind": "slots", "capacity": 1})
    ids: dict[tuple[str, str, str], str] = {}
    places = (("acme", "ours"), ("other", "ours"), ("acme", "theirs"))
    for tenant, lane in places:
        phone = {"gates": ["phone:{phone}"], "args": {"phone": f"{tenant} {lane}"}}
        for what in ("held", "parked"):
            ids[what, tenant, lane] = await rig.send(tenant=tenant, lane=lane, **phone)
        asked = ClaimRequest(
            worker=f"{'w' * 31}1", request=len(ids), lanes=((lane, 1),), n=9, free=9
        )
        await rig.store.claim(asked)
    for tenant, lane in places:
        ids["waiting", tenant, lane] = await rig.send(tenant=tenant, lane=lane)

    async def seen(token: str | Role, path: str, **asked: Any) -> set[str]:
        rows = (await rig.ask(token, path, **asked))["rows"]
        return {one for row in rows for one in row.get("first", [row.get("id")])}

    acme = await rig.token(Role.VIEWER, tenants=["acme"])
    ours = await rig.token(Role.VIEWER, lanes=["ours"])
    both = await rig.token(Role.VIEWER, tenants=["acme", "umbrella"])
    whole = set(ids)
    for token, named, covered in (
        (acme, {}, {one for one in whole if one[1] == "acme"}),
        (both, {"tenant": "acme"}, {one for one in whole if one[1] == "acme"}),
        (ours, {}, {one for one in whole if one[2] == "ours"}),
        (Role.VIEWER, {"tenant": "other"}, {one for one in whole if one[1] == "other"}),
        (Role.VIEWER, {}, whole),
    ):
        visible = {ids[one] for one in covered}
        assert await seen(token, "/v1/jobs", id=list(ids.values()), **named) == visible
        assert await seen(token, "/v1/jobs", underway=True, **named) == visible
        held = await seen(token, "/v1/jobs", worker=f"{'w' * 31}1", **named)
        assert held == {ids[one] for one in covered if one[0] == "held"}
        for what, tenant, lane in whole:
            there = visible & {ids[what, tenant, lane]}
            if what == "parked":
                gate = f"phone:{tenant} {lane}"
                assert await seen(token, "/v1/flows", gate=gate, first=9, **named) == there
        waiting = await seen(token, "/v1/flows", lane="ours", first=9, **named)
        assert waiting == {ids[one] for one in covered if one[::2] == ("waiting", "ours")}
    for token, asked in (
        (acme, {"lane": "ours", "tenant": "other"}),
        (ours, {"lane": "theirs"}),
    ):
        problem(await rig.call(token, "GET", "/v1/flows", params=asked), 403, "forbidden")
        asked |= {"underway": True}
        problem(await rig.call(token, "GET", "/v1/jobs", params=asked), 403, "forbidden")
    for path, asked in (("/v1/flows", {"lane": "ours"}), ("/v1/jobs", {"underway": True})):
        problem(await rig.call(both, "GET", path, params=asked), 422, "invalid_value")
    asked = {"worker": "w", "tenant": "other"}
    problem(await rig.call(acme, "GET", "/v1/jobs", params=asked), 403, "forbidden")
    parked = await rig.call(acme, "GET", "/v1/gates", params={"parked": True})
    problem(parked, 403, "forbidden")


async def test_foreign_jobs_take_no_place_on_a_page_of_a_workers_jobs(rig: Rig):
    worker = "w" * 32
    places = (("other", "ours", 70), ("acme", "theirs", 60), ("acme", "ours", 3))
    for request, (tenant, lane, n) in enumerate(places, 1):
        body = [{"kind": "noop", "tenant": tenant, "lane": lane}] * n
        made = (await rig.call(Role.PRODUCER, "POST", "/v1/jobs", body)).json()["jobs"]
        asked = ClaimRequest(worker=worker, request=request, lanes=((lane, 1),), n=n, free=n)
        assert len((await rig.store.claim(asked)).jobs) == n
    ours = [job["id"] for job in made]
    both = await rig.token(Role.VIEWER, tenants=["acme"], lanes=["ours"])
    lane = await rig.token(Role.VIEWER, lanes=["ours"])
    for token, asked in ((both, {}), (lane, {"tenant": "acme"})):
        for how in ({"worker": worker}, {"underway": True}):
            for limit in (2, 3, 100):
                rows = (await rig.ask(token, "/v1/jobs", limit=limit, **how, **asked))["rows"]
                assert [job["id"] for job in rows] == ours[:limit], (how, limit)
    theirs = await rig.ask(await of_acme(rig, Role.VIEWER), "/v1/jobs", worker=worker, limit=61)
    assert [job["lane"] for job in theirs["rows"]] == ["theirs"] * 60 + ["ours"]


async def test_bulk_move_reaches_no_job_of_another_tenant(rig: Rig):
    token = await of_acme(rig, Role.OPERATOR)
    theirs, ours = await rig.send(tenant="other"), await rig.send(tenant="acme")
    body = {"verb": "kill", "ids": [theirs, ours]}
    told = (await rig.call(token, "POST", "/v1/moves", body)).json()
    assert [one["answer"] for one in told["jobs"]] == ["unknown", "done"]
    by_filter = {"verb": "kill", "filter": {"lane": "main"}}
    assert (await rig.call(token, "POST", "/v1/moves", by_filter)).json()["done"] == 0
    named = {"verb": "kill", "filter": {"tenant": "other"}}
    problem(await rig.call(token, "POST", "/v1/moves", named), 403, "forbidden")
    assert (await rig.ask(Role.ADMIN, f"/v1/jobs/{theirs}"))["state"] == "waiting"


async def test_move_by_filter_reaches_no_job_of_another_lane(rig: Rig):
    token = await rig.token(Role.OPERATOR, lanes=["ours"])
    theirs, ours = await rig.send(lane="theirs"), await rig.send(lane="ours")
    body = {"verb": "kill", "filter": {"kind": "noop"}, "limit": 1}
    assert (await rig.call(token, "POST", "/v1/moves", body | {"dry": True})).json()["fits"] == 1
    assert (await rig.call(token, "POST", "/v1/moves", body)).json()["done"] == 1
    states = [(await rig.ask(Role.ADMIN, f"/v1/jobs/{id}"))["state"] for id in (theirs, ours)]
    assert states == ["waiting", "dead"]


async def test_why_names_no_job_of_another_tenant(rig: Rig):
    token = await of_acme(rig, Role.VIEWER)
    gate = {"kind": "slots", "capacity": 1}
    await rig.call(Role.ADMIN, "PUT", "/v1/gates/line", gate)
    holder = await rig.send(tenant="other", lane="l", gates=["line"])
    await rig.store.claim(ClaimRequest(worker="w" * 32, request=1, lanes=(("l", 1),)))
    ours = await rig.send(tenant="acme", lane="l", gates=["line"])
    reply = await rig.call(token, "GET", f"/v1/jobs/{ours}/why")
    assert holder not in reply.text
    why = reply.json()
    assert (why["closed"][0]["holders"], why["closed"][0]["holder_count"]) == ([], 1)
    assert "held by another's job" in why["sentence"]
    whole = await rig.call(Role.VIEWER, "GET", f"/v1/jobs/{ours}/why")
    assert holder in whole.text


async def test_why_names_no_job_of_another_tenant_that_only_a_pool_member_shows(rig: Rig):
    pool = {"kind": "pool", "members": {"a": 10, "b": 10}}
    await rig.call(Role.ADMIN, "PUT", "/v1/gates/lines", pool)
    tenants = ["acme"] * 10 + ["other"] * 10
    jobs = [await rig.send(tenant=one, lane="l", gates=["lines"]) for one in tenants]
    asked = ClaimRequest(worker="w" * 32, request=1, lanes=(("l", 1),), n=20, free=20)
    assert len((await rig.store.claim(asked)).jobs) == 20
    waiting = await rig.send(tenant="acme", lane="l", gates=["lines"])

    async def shown(who: Role | str) -> set[str]:
        (gate,) = (await rig.ask(who, f"/v1/jobs/{waiting}/why"))["closed"]
        assert len(gate["holders"]) <= 10  # out of the twenty that its members show
        return {one["job"] for member in gate["members"] for one in member["holders"]}

    assert await shown(Role.VIEWER) == set(jobs)
    assert await shown(await of_acme(rig, Role.VIEWER)) == set(jobs[:10])


async def test_why_names_no_job_of_another_tenant_with_a_reservation(rig: Rig):
    await rig.call(Role.ADMIN, "PUT", "/v1/gates/line", {"kind": "slots", "capacity": 2})

    async def claim(number: int, lane: str) -> None:
        asked = ClaimRequest(worker="w" * 32, request=number, lanes=((lane, 1),), free=1)
        await rig.store.claim(asked)

    await rig.send(tenant="other", lane="l", gates=["line"])
    await claim(1, "l")
    heavy = {"gates": [{"gate": "line", "amount": 2}], "priority": 1}
    theirs = await rig.send(tenant="other", lane="l", **heavy)
    await claim(2, "l")
    ours = await rig.send(tenant="acme", lane="m", gates=["line"])
    await claim(3, "m")
    whole = await rig.ask(Role.VIEWER, f"/v1/jobs/{ours}/why")
    assert whole["closed"][0]["reserved_for"] == theirs
    token = await of_acme(rig, Role.VIEWER)
    reply = await rig.call(token, "GET", f"/v1/jobs/{ours}/why")
    assert theirs not in reply.text
    assert "are kept for another's job" in reply.json()["sentence"]


async def test_operator_of_a_tenant_can_pause_that_tenant_and_nothing_else(rig: Rig):
    token = await of_acme(rig, Role.OPERATOR)
    closed = await rig.call(token, "POST", "/v1/closures", {"gate": "tenant:acme"})
    assert closed.status_code == 200
    assert (await rig.call(token, "DELETE", "/v1/closures/tenant:acme")).status_code == 200
    for gate in ("all", "tenant:other", "lane:main", "kind:noop", "line"):
        reply = await rig.call(token, "POST", "/v1/closures", {"gate": gate})
        problem(reply, 403, "forbidden")


async def test_permit_of_another_tenants_job_cannot_be_released(rig: Rig):
    token = await of_acme(rig, Role.OPERATOR)
    await rig.call(Role.ADMIN, "PUT", "/v1/gates/line", {"kind": "slots", "capacity": 1})
    theirs = await rig.send(tenant="other", lane="l", gates=["line"])
    await rig.store.claim(ClaimRequest(worker="w" * 32, request=1, lanes=(("l", 1),)))
    body = {"gate": "line", "job": theirs}
    problem(await rig.call(token, "DELETE", "/v1/permits", body), 422, "unknown_job")
    assert (await rig.ask(Role.ADMIN, "/v1/gates/line"))["used"] == 1


async def test_entry_creates_jobs_only_of_the_tokens_tenant(rig: Rig):
    token = await of_acme(rig, Role.OPERATOR)
    entry = {"schedule": "every 1h", "job": {"kind": "noop"}}
    assert (await rig.call(token, "PUT", "/v1/timetable/ours", entry)).status_code == 200
    told = await rig.ask(Role.ADMIN, "/v1/timetable/ours")
    assert told["spec"]["job"]["tenant"] == "acme"
    other = {"schedule": "every 1h", "job": {"kind": "noop", "tenant": "other"}}
    problem(await rig.call(token, "PUT", "/v1/timetable/new", other), 403, "forbidden")
    await rig.call(Role.ADMIN, "PUT", "/v1/timetable/theirs", other)
    problem(await rig.call(token, "PUT", "/v1/timetable/theirs", entry), 403, "forbidden")


# -------------------------------------------------------------------------------------- lanes


async def test_timetable_page_has_only_entries_of_the_tokens_lanes(rig: Rig):
    for name, lane in (("a", "ours"), ("b", "theirs"), ("c", "ours"), ("d", "theirs")):
        entry = {"schedule": "every 1h", "job": {"kind": "noop", "lane": lane}}
        assert (await rig.call(Role.ADMIN, "PUT", f"/v1/timetable/{name}", entry)).is_success
    token = await rig.token(Role.VIEWER, lanes=["ours"])
    page = await rig.ask(token, "/v1/timetable", limit=1)
    assert [one["name"] for one in page["rows"]] == ["a"]
    page = await rig.ask(token, "/v1/timetable", limit=1, cursor=page["cursor"])
    assert ([one["name"] for one in page["rows"]], page["cursor"]) == (["c"], None)


async def test_token_for_lanes_sends_to_and_sees_matching_lanes(rig: Rig):
    token = await rig.token(Role.PRODUCER, lanes=["send_*", "main"])
    ours = await rig.send(token, lane="send_mail")
    also = await rig.send(token)
    theirs = await rig.send(lane="calls")
    for lane in ("calls", "main2", "resend_mail"):
        body = {"kind": "noop", "lane": lane}
        problem(await rig.call(token, "POST", "/v1/jobs", body), 403, "forbidden")
    follow = {"kind": "noop", "on_final": {"kind": "x", "lane": "calls"}}
    problem(await rig.call(token, "POST", "/v1/jobs", follow), 403, "forbidden")
    chain = {"kind": "noop", "on_final": {"kind": "y", "policy": {"on_final": follow["on_final"]}}}
    problem(await rig.call(token, "POST", "/v1/jobs", chain), 403, "forbidden")
    assert [job["id"] for job in (await rig.ask(token, "/v1/jobs"))["rows"]] == [ours, also]
    reply = await rig.call(token, "GET", "/v1/jobs", params={"lane": "calls"})
    problem(reply, 403, "forbidden")
    problem(await rig.call(token, "GET", f"/v1/jobs/{theirs}"), 404, "unknown_job")


async def test_operator_of_lanes_changes_and_sees_those(rig: Rig):
    token = await rig.token(Role.OPERATOR, lanes=["send_*"])
    await rig.send(lane="send_mail")
    await rig.send(lane="calls")
    assert (await rig.call(token, "POST", "/v1/lanes/send_mail/pause")).status_code == 200
    assert (await rig.call(token, "PUT", "/v1/lanes/send_sms", {"target": "5s"})).status_code == 200
    problem(await rig.call(token, "POST", "/v1/lanes/calls/pause"), 403, "forbidden")
    for gate in ("all", "tenant:acme", "lane:calls", "kind:noop", "line"):
        reply = await rig.call(token, "POST", "/v1/closures", {"gate": gate})
        problem(reply, 403, "forbidden")
    problem(await rig.call(token, "GET", "/v1/lanes/calls"), 403, "forbidden")
    rows = (await rig.ask(token, "/v1/lanes"))["rows"]
    assert [one["name"] for one in rows] == ["send_mail", "send_sms"]


# ---------------------------------------------------------------------------------- conflicts


@pytest.mark.parametrize("scope", ["tenants", "lanes"])
async def test_conflict_with_a_foreign_job_is_not_reported_as_one(rig: Rig, scope: str):
    theirs = await rig.send(tenant="other", lane="theirs")
    token = await rig.token(Role.PRODUCER, **{scope: ["ours"]})
    body = {"kind": "noop", "lane": "ours", "tenant": "ours"}
    taken = await rig.call(token, "POST", "/v1/jobs", {**body, "id": theirs})
    told = problem(taken, 422, "invalid_value")
    assert not {"exists", "conflict", "body", "job "} & {*told["detail"].split()}
    many = [body] * 1_000 + [{**body, "id": theirs}]
    told = problem(await rig.call(token, "POST", "/v1/jobs", many), 422, "invalid_value")
    assert told["stored"] == 1_000
    ours = await rig.send(token, **body)
    again = {**body, "kind": "another", "id": ours}
    problem(await rig.call(token, "POST", "/v1/jobs", again), 409, "id_conflict")


async def test_conflict_of_keys_does_not_name_a_job_of_another_lane(rig: Rig):
    theirs = await rig.send(lane="theirs", key="k")
    token = await rig.token(Role.PRODUCER, lanes=["ours"])
    reply = await rig.call(token, "POST", "/v1/jobs", {"kind": "noop", "lane": "ours", "key": "k"})
    assert "another's job" in problem(reply, 409, "key_conflict")["detail"]
    assert theirs not in reply.text
    whole = await rig.call(Role.PRODUCER, "POST", "/v1/jobs", {"kind": "x", "key": "k"})
    assert theirs in problem(whole, 409, "key_conflict")["detail"]


async def test_follow_up_that_conflicts_with_a_foreign_job_does_not_reveal_it(rig: Rig):
    theirs = await rig.send(lane="theirs")
    token = await rig.token(Role.WORKER, Role.PRODUCER, lanes=["ours"])
    job = await rig.send(lane="ours")
    await rig.call(token, "POST", "/v1/claims", {"worker": "w", "lanes": "ours"})
    then = [{"kind": "noop", "lane": "ours", "id": theirs}]
    outcome = {"job": job, "run": 1, "outcome": "succeeded", "then": then}
    settled = {"worker": "w", "outcomes": [outcome]}
    reply = await rig.call(token, "POST", "/v1/settlements", settled)
    problem(reply, 422, "invalid_value")
