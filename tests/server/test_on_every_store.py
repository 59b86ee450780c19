"""Every store gives the same answers to the queries that the routes make."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from headway.contract.claims import ClaimRequest
from headway.contract.definitions import Role
from headway.contract.outcomes import HandedOver, Outcome, Returned, SettleRequest
from tests.server.problems import problem
from tests.server.rig import Rig, serving
from tests.servers.stores import EVERYWHERE, NewUrl

ODD = "ö/{[%2F]} 'x';--\u202e😀"
"""A name that no store may mishandle; not a valid gate, because of its braces."""


async def rows(rig: Rig, path: str, **asked: Any) -> list[Any]:
    """Return all rows of a listing, two per page."""
    found: list[Any] = []
    cursor = None
    while True:
        more = {"cursor": cursor} if cursor else {}
        page = await rig.ask(Role.ADMIN, path, limit=2, **asked, **more)
        found += page["rows"]
        cursor = page["cursor"]
        if cursor is None:
            return found


async def done(rig: Rig, method: str, path: str, body: Any = None, **more: Any) -> Any:
    reply = await rig.call(Role.ADMIN, method, path, body, **more)
    assert reply.status_code in {200, 201}, (path, reply.text)
    return reply.json()


@pytest.fixture(params=EVERYWHERE)
async def rig(request: pytest.FixtureRequest, new_url: NewUrl) -> AsyncIterator[Rig]:
    async with serving(new_url(request.param)) as one:
        yield one


async def test_jobs_are_created_found_explained_and_moved_alike(rig: Rig) -> None:
    await done(rig, "PUT", "/v1/gates/line", {"kind": "slots", "capacity": 1})
    await done(rig, "PUT", "/v1/gates/c:{x}", {"kind": "rate", "limit": 1, "per": "1h"})
    jobs = [
        {"kind": ODD, "lane": ODD, "tenant": ODD, "subject": ODD, "args": {"x": n, ODD: ODD}}
        for n in range(5)
    ]
    gated = {**jobs[0], "gates": ["line", "c:{x}"], "key": ODD}
    made = await done(rig, "POST", "/v1/jobs", [*jobs, gated])
    ids = [one["id"] for one in made["jobs"]]
    for asked in ({}, {"lane": ODD}, {"tenant": ODD}, {"subject": ODD, "tenant": ODD}):
        assert [job["id"] for job in await rows(rig, "/v1/jobs", **asked)] == ids, asked
    keyed = await rig.ask(Role.ADMIN, "/v1/jobs", key=ODD, tenant=ODD)
    assert [job["id"] for job in keyed["rows"]] == [ids[5]]

    ask = ClaimRequest(worker="w" * 32, request=1, lanes=((ODD, 1),), n=6, free=6)
    assert len((await rig.store.claim(ask)).jobs) == 6
    waits = (await done(rig, "POST", "/v1/jobs", {**gated, "key": None}))["id"]
    why = await rig.ask(Role.ADMIN, f"/v1/jobs/{waits}/why")
    assert {gate["name"] for gate in why["closed"]} >= {"line"}
    assert why["closed"][0]["holders"][0]["job"] == ids[5]

    headers = {"Idempotency-Key": "k"}
    move = {"verb": "kill", "filter": {"lane": ODD}}
    first = await done(rig, "POST", "/v1/moves", move, headers=headers)
    assert first["done"] == 7
    assert await done(rig, "POST", "/v1/moves", move, headers=headers) == first


async def test_awaiting_jobs_are_found_whatever_else_there_is(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("memory.jobs", "ledger.paging", "redis.views"):
        monkeypatch.setattr(f"headway.stores.{module}.MOST_EXAMINED", 6)
    worker = "w" * 32
    await done(rig, "POST", "/v1/jobs", 9 * [{"kind": "noop", "lane": "others"}])
    before = [await rig.send(lane="calls", tenant=tenant) for tenant in ("", "x", "x", "", "x")]
    ask = ClaimRequest(worker=worker, request=1, lanes=(("calls", 1),), n=5, free=5)
    runs = (await rig.store.claim(ask)).jobs
    handed: list[Outcome] = [
        HandedOver(one.id, one.run, key=one.id, timeout_ms=60_000) for one in runs
    ]
    handed += [Returned(one.id, one.run) for one in runs]
    await rig.store.settle(SettleRequest(worker=worker, outcomes=tuple(handed)))
    await done(rig, "POST", "/v1/jobs", 9 * [{"kind": "noop", "lane": "calls"}])

    async def seen(**asked: Any) -> list[str]:
        page = await rig.ask(Role.ADMIN, "/v1/jobs", state="awaiting", **asked)
        return [job["id"] for job in page["rows"]]

    assert await seen() == before
    assert await seen(newest=True) == before[::-1]
    assert await seen(tenant="x") == [before[1], before[2], before[4]]
    assert await seen(kind="none") == []
    assert await seen(underway=True, tenant="x") == [before[1], before[2], before[4]]


async def test_definitions_and_views_are_returned_alike(rig: Rig) -> None:
    await done(rig, "PUT", "/v1/gates/line", {"kind": "slots", "capacity": 1})
    await done(rig, "PUT", "/v1/gates/c:{x}", {"kind": "rate", "limit": 1, "per": "1h"})
    await done(rig, "PUT", "/v1/gates/numbers", {"kind": "pool", "members": {"+1": 1}})
    await rig.send(lane=ODD)
    await done(rig, "POST", "/v1/closures", {"gate": f"tenant:{ODD}", "reason": ODD})
    closed = await rows(rig, "/v1/closures")
    assert [(one["gate"], one["reason"]) for one in closed] == [(f"tenant:{ODD}", ODD)]
    names = [gate["name"] for gate in await rows(rig, "/v1/gates")]
    assert {"line", "c:{x}", "numbers", f"tenant:{ODD}"} <= set(names)
    assert len(names) == len(set(names))

    await done(rig, "PUT", "/v1/lanes/other", {"target": "5s"})
    assert [one["name"] for one in await rows(rig, "/v1/lanes")] == sorted(["other", ODD])
    entry = {"schedule": "at 09:00", "job": {"kind": ODD, "args": {"x": 1}}}
    await done(rig, "PUT", "/v1/timetable/daily", entry)
    (told,) = await rows(rig, "/v1/timetable")
    assert (told["spec"]["job"]["kind"], len(told["next_at"])) == (ODD, 3)

    trail = await rows(rig, "/v1/trail")
    assert len({one["seq"] for one in trail}) == len(trail)
    assert trail[0]["target"] == "daily"
    audit = await rig.ask(Role.ADMIN, "/v1/audit", limit=1)
    while audit["cursor"] is not None:
        assert audit["differences"] == []
        audit = await rig.ask(Role.ADMIN, "/v1/audit", limit=1, cursor=audit["cursor"])

    shop = await done(rig, "POST", "/v1/tokens", {"name": ODD, "roles": ["producer"]})
    assert (await rig.ask(shop["token"], "/v1/me"))["name"] == ODD
    stale = {"If-Match": '"1"'}
    late = await rig.call(Role.ADMIN, "DELETE", "/v1/lanes/other", headers=stale)
    problem(late, 409, "revision_conflict")
    for path in ("/v1/jobs", "/v1/trail", "/v1/audit", "/v1/gates", "/v1/lanes"):
        reply = await rig.call(Role.ADMIN, "GET", path, params={"cursor": "²"})
        problem(reply, 422, "invalid_value")
