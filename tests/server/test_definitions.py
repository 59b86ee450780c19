"""Lanes, gates, closings, the timetable, and views of the whole store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import headway as hw
from headway.contract.claims import ClaimRequest
from headway.contract.definitions import (
    DeclareEntry,
    DefineRequest,
    EntrySpec,
    FireRequest,
    Role,
)
from headway.contract.views import JobsQuery, Query, SpecsQuery, StatsQuery, TimetableQuery
from headway.core.check import LATEST
from headway.core.instant import parse_instant
from headway.core.timetable.schedule import Every
from headway.runtime.timing import Timing
from headway.server.service import DeclaredGates
from headway.stores.memory import MemoryStore
from headway.testing.clock import FakeClock
from tests.cli.seeding import new_job
from tests.server.problems import problem
from tests.server.rig import Rig, serving

OPERATOR, VIEWER = Role.OPERATOR, Role.VIEWER
OFFICE = {"kind": "hours", "hours": "09:00-18:00"}
ENTRY = {"schedule": "every 1m", "job": {"kind": "a"}}
WITH_KEY, WITH_GATE = {"kind": "a", "key": "k"}, {"kind": "a", "gates": ["n"]}
CLASHING = {"kind": "a", "gates": ["c:{x}"], "args": {"x": "7"}}
"""A job whose gate, resolved, has the name of another declared gate."""


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with serving() as one:
        yield one


async def done(rig: Rig, method: str, path: str, body: Any = None, **more: Any) -> Any:
    reply = await rig.call(OPERATOR, method, path, body, **more)
    assert reply.status_code == 200, reply.text
    return reply.json()


async def all_pages(rig: Rig, path: str, **asked: Any) -> list[Any]:
    rows: list[Any] = []
    cursor = None
    while True:
        page = await rig.ask(VIEWER, path, **asked, **({"cursor": cursor} if cursor else {}))
        assert len(page["rows"]) <= asked["limit"]
        rows += page["rows"]
        cursor = page["cursor"]
        if cursor is None:
            return rows


# ------------------------------------------------------------------------------------- gates


async def test_each_kind_of_gate_is_declared_set_and_reset(rig: Rig):
    await done(rig, "PUT", "/v1/gates/line", {"kind": "slots", "capacity": 2})
    await done(rig, "PUT", "/v1/gates/customer:{phone}", {"kind": "rate", "limit": 7, "per": "1h"})
    members = {"+1": 4, "+2": 8}
    await done(rig, "PUT", "/v1/gates/numbers", {"kind": "pool", "members": members})
    hours = {"kind": "hours", "hours": "09:00-18:00", "days": "mon-fri", "tz": "Europe/Berlin"}
    await done(rig, "PUT", "/v1/gates/office", hours)
    await done(rig, "PATCH", "/v1/gates/line", {"capacity": 5, "reason": "more staff"})
    await done(rig, "PATCH", "/v1/gates/customer:{phone}", {"limit": 3, "per": "30m"})
    await done(rig, "PATCH", "/v1/gates/numbers/+1", {"capacity": 6})
    gates = {one["name"]: one for one in await all_pages(rig, "/v1/gates", limit=2)}
    assert (gates["line"]["capacity"], gates["line"]["overridden"]) == (5, True)
    rate = gates["customer:{phone}"]
    assert (rate["capacity"], rate["per_ms"], rate["shared"]) == (3, 1_800_000, False)
    assert [one["capacity"] for one in gates["numbers"]["members"]] == [6, 8]
    assert gates["office"]["kind"] == "hours"
    await done(rig, "DELETE", "/v1/gates/line")
    line = await rig.ask(VIEWER, "/v1/gates/line")
    assert (line["capacity"], line["overridden"]) == (2, False)


async def test_gates_are_found_by_their_exact_names(rig: Rig):
    await done(rig, "PUT", "/v1/gates/a/b?c", {"kind": "slots", "capacity": 1})
    found = await rig.ask(VIEWER, "/v1/gates", name=["all", "a/b"])
    assert [one["name"] for one in found["rows"]] == ["all", "a/b"]
    assert (await rig.ask(VIEWER, "/v1/gates/lane:main"))["kind"] == "implicit"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/v1/gates/nobody", None, 404, "unknown_gate"),
        ("PATCH", "/v1/gates/nobody", {"capacity": 1}, 404, "unknown_gate"),
        ("DELETE", "/v1/gates/nobody", None, 404, "unknown_gate"),
        ("DELETE", "/v1/closures/nobody", None, 404, "unknown_gate"),
        ("POST", "/v1/closures", {"gate": "nobody"}, 422, "unknown_gate"),
        ("POST", "/v1/closures", {"gate": "c:{x}"}, 422, "invalid_value"),
        ("POST", "/v1/closures", {"gate": "all", "after": 1, "until": 1}, 422, "invalid_value"),
        ("POST", "/v1/closures", {"gate": "all", "until": 86_400_000}, 422, "invalid_value"),
        ("POST", "/v1/lanes/mail/pause", {"until": "0s"}, 422, "invalid_value"),
        ("PUT", "/v1/gates/all", {"kind": "slots", "capacity": 1}, 422, "invalid_value"),
        ("PUT", "/v1/gates/x{", {"kind": "slots", "capacity": 1}, 422, "invalid_value"),
        ("PUT", "/v1/gates/c:{x}", {"kind": "slots", "capacity": 1}, 422, "invalid_value"),
        ("PUT", "/v1/gates/n", {"kind": "slots", "capacity": -1}, 422, "invalid_value"),
        ("PUT", "/v1/gates/n", {"kind": "slots", "capacity": 2**31}, 422, "invalid_value"),
        ("PUT", "/v1/gates/n", {"kind": "slots"}, 422, "invalid_value"),
        ("PUT", "/v1/gates/n", {"kind": "slots", "capacity": 1, "limit": 1}, 422, "invalid_value"),
        ("PUT", "/v1/gates/n", {"kind": "rate", "limit": 1, "per": 0}, 422, "invalid_value"),
        ("PUT", "/v1/gates/n", {"kind": "pool", "members": {}}, 422, "invalid_value"),
        ("PUT", "/v1/gates/n", {"kind": "hours", "hours": "9-5"}, 422, "invalid_value"),
        ("PUT", "/v1/gates/n", {**OFFICE, "tz": "Mars"}, 422, "invalid_value"),
        ("PUT", "/v1/gates/n", {"kind": "lock"}, 422, "invalid_value"),
        ("PATCH", "/v1/gates/c:{x}", {}, 422, "invalid_value"),
        ("PATCH", "/v1/gates/c:{x}", {"capacity": 1}, 422, "invalid_value"),
        ("GET", "/v1/gates?cursor=%C2%B2", None, 422, "invalid_value"),
        ("GET", "/v1/gates?limit=0", None, 422, "invalid_value"),
        ("GET", "/v1/gates/a%00b", None, 422, "invalid_value"),
        ("GET", "/v1/lanes?cursor=x", None, 422, "invalid_value"),
        ("PUT", "/v1/lanes/a", {"weights": {"t": 2}}, 422, "invalid_value"),
        ("PUT", "/v1/lanes/a", {"weights": {"t": 0}, "fair": "tenant"}, 422, "invalid_value"),
        ("PUT", "/v1/lanes/a", {"concurrency": "3"}, 422, "invalid_value"),
        ("PUT", "/v1/lanes/a", {"colour": 1}, 422, "invalid_value"),
        ("GET", "/v1/trail?cursor=%C2%B2", None, 422, "invalid_value"),
        ("GET", "/v1/audit?cursor=abc", None, 422, "invalid_value"),
        ("GET", "/v1/audit?limit=0", None, 422, "invalid_value"),
        ("GET", "/v1/workers?cursor=!", None, 422, "invalid_value"),
        ("GET", "/v1/timetable/nobody", None, 404, "unknown_entry"),
        ("DELETE", "/v1/timetable/nobody", None, 404, "unknown_entry"),
        ("POST", "/v1/timetable/nobody/enable", None, 404, "unknown_entry"),
        ("POST", "/v1/timetable/nobody/disable", None, 404, "unknown_entry"),
        ("POST", "/v1/timetable/nobody/fire", None, 404, "unknown_entry"),
        ("PUT", "/v1/timetable/e", {"schedule": "x", "job": {"kind": "a"}}, 422, "invalid_value"),
        ("PUT", "/v1/timetable/e", {**ENTRY, "schedule": "every 1ms"}, 422, "invalid_value"),
        ("PUT", "/v1/timetable/e", {**ENTRY, "job": WITH_KEY}, 422, "invalid_value"),
        ("PUT", "/v1/timetable/e", {**ENTRY, "job": WITH_GATE}, 422, "unknown_gate"),
        ("PUT", "/v1/timetable/e", {**ENTRY, "job": CLASHING}, 422, "invalid_value"),
        ("GET", "/v1/nothing", None, 404, "unknown_path"),
        ("POST", "/v1/stats", {}, 405, "unknown_method"),
    ],
)  # fmt: skip
async def test_invalid_definitions_are_refused(
    rig: Rig, method: str, path: str, body: object, status: int, code: str
):
    for gate in ("c:{x}", "c:7"):
        await done(rig, "PUT", f"/v1/gates/{gate}", {"kind": "rate", "limit": 1, "per": "1s"})
    before = (await rig.ask(VIEWER, "/v1/stats"))["revision"]
    problem(await rig.call(OPERATOR, method, path, body), status, code)
    assert (await rig.ask(VIEWER, "/v1/stats"))["revision"] == before


async def test_change_is_refused_if_the_definitions_changed_meanwhile(rig: Rig):
    await done(rig, "PUT", "/v1/lanes/a", {"target": "5s"})
    reply = await rig.call(VIEWER, "GET", "/v1/lanes/a")
    known = reply.headers["etag"]
    await done(rig, "PUT", "/v1/lanes/b", {"target": "5s"})
    for method, path, body in (
        ("PUT", "/v1/lanes/a", {"target": "6s"}),
        ("DELETE", "/v1/lanes/a", None),
        ("PUT", "/v1/gates/g", {"kind": "slots", "capacity": 1}),
        ("POST", "/v1/closures", {"gate": "all"}),
        ("DELETE", "/v1/closures/all", None),
        ("PUT", "/v1/timetable/e", {"schedule": "every 1m", "job": {"kind": "a"}}),
    ):
        late = await rig.call(OPERATOR, method, path, body, headers={"If-Match": known})
        problem(late, 409, "revision_conflict")
    current = (await rig.call(VIEWER, "GET", "/v1/lanes")).headers["etag"]
    await done(rig, "PUT", "/v1/lanes/a", {"target": "6s"}, headers={"If-Match": current})
    unusable = await rig.call(
        OPERATOR, "PUT", "/v1/lanes/a", {"target": "6s"}, headers={"If-Match": '"x"'}
    )
    problem(unusable, 422, "invalid_value")


async def test_put_that_changes_nothing_keeps_the_revision(rig: Rig):
    body = {"kind": "slots", "capacity": 2}
    first = await done(rig, "PUT", "/v1/gates/line", body)
    assert await done(rig, "PUT", "/v1/gates/line", body) == first


async def test_closing_is_listed_with_who_and_why_until_it_ends(rig: Rig):
    await done(rig, "PUT", "/v1/gates/numbers", {"kind": "pool", "members": {"+1": 1}})
    said = await done(rig, "POST", "/v1/closures", {"gate": "all", "reason": "stop"})
    assert said["until_at"] is None
    until = "2126-01-01T00:00Z"
    await done(rig, "POST", "/v1/closures", {"gate": "numbers/+1", "until": until})
    rows = await all_pages(rig, "/v1/closures", limit=1)
    assert {(one["gate"], one["until_at"], one["by"], one["reason"]) for one in rows} == {
        ("all", None, "operator", "stop"),
        ("numbers/+1", parse_instant(until), "operator", ""),
    }
    await done(rig, "DELETE", "/v1/closures/all")
    await done(rig, "DELETE", "/v1/closures/all")
    assert [one["gate"] for one in await all_pages(rig, "/v1/closures", limit=9)] == ["numbers/+1"]


async def test_closed_gate_lets_nothing_pass_and_an_opened_one_does(rig: Rig):
    await rig.send(lane="l")
    await done(rig, "POST", "/v1/closures", {"gate": "all"})
    ask = ClaimRequest(worker="w" * 32, request=1, lanes=(("l", 1),))
    assert (await rig.store.claim(ask)).jobs == []
    await done(rig, "DELETE", "/v1/closures/all")
    ask = ClaimRequest(worker="w" * 32, request=2, lanes=(("l", 1),))
    assert len((await rig.store.claim(ask)).jobs) == 1


# ------------------------------------------------------------------------------------- lanes


async def test_lane_is_set_paused_resumed_and_reset(rig: Rig):
    path = "/v1/lanes/mail%2Fout"
    body = {
        "concurrency": 3,
        "lease": "45s",
        "target": "5s",
        "fair": "tenant",
        "weights": {"acme": 2},
        "max_backlog": 10,
    }
    await done(rig, "PUT", path, body)
    paused = await done(rig, "POST", f"{path}/pause", {"until": "10m", "reason": "rain"})
    lane = await rig.ask(VIEWER, path)
    assert lane["spec"] == {
        "name": "mail/out",
        "concurrency": 3,
        "lease_ms": 45_000,
        "target_ms": 5_000,
        "fair": "tenant",
        "weights": [["acme", 2]],
        "max_backlog": 10,
    }
    assert (lane["paused"], lane["overridden"], paused["gate"]) == (True, True, "lane:mail/out")
    await done(rig, "POST", f"{path}/resume")
    await done(rig, "DELETE", path)
    lane = await rig.ask(VIEWER, path)
    assert (lane["paused"], lane["overridden"], lane["spec"]["concurrency"]) == (False, False, None)


async def test_operator_setting_overrides_a_declared_lane(rig: Rig):
    await done(rig, "PUT", "/v1/lanes/a?declare=true", {"concurrency": 1})
    lane = await rig.ask(VIEWER, "/v1/lanes/a")
    assert (lane["spec"]["concurrency"], lane["overridden"]) == (1, False)
    await done(rig, "PUT", "/v1/lanes/a", {"concurrency": 2})
    await done(rig, "PUT", "/v1/lanes/a?declare=true", {"concurrency": 3})
    assert (await rig.ask(VIEWER, "/v1/lanes/a"))["spec"]["concurrency"] == 2
    await done(rig, "DELETE", "/v1/lanes/a")
    assert (await rig.ask(VIEWER, "/v1/lanes/a"))["spec"]["concurrency"] == 3


async def test_lanes_are_listed_in_pages_with_their_counts(rig: Rig):
    for lane in "cab":
        await rig.send(lane=lane)
    rows = await all_pages(rig, "/v1/lanes", limit=2, latency=True)
    assert [one["name"] for one in rows] == ["a", "b", "c"]
    assert all(one["unfinished"] == 1 and one["counts"] == {"waiting": 1} for one in rows)
    assert [one["latency"]["lane"] for one in rows] == ["a", "b", "c"]
    named = await rig.ask(VIEWER, "/v1/lanes", name=["c", "unheard of"])
    assert [(one["name"], one["unfinished"]) for one in named["rows"]] == [
        ("c", 1),
        ("unheard of", 0),
    ]
    assert named["rows"][0]["latency"] is None


# --------------------------------------------------------------------------------- timetable


async def test_entry_is_declared_listed_switched_and_removed(rig: Rig):
    path = "/v1/timetable/night%2Fly"
    body = {
        "schedule": "at 03:00 mon-fri",
        "tz": "Europe/Berlin",
        "job": {"kind": "clean", "lane": "nightly", "args": {"deep": True}},
        "misfire": "skip",
        "overlap": "one",
    }
    await done(rig, "PUT", path, body)
    entry = await rig.ask(VIEWER, path, fires=2)
    assert entry["spec"]["job"]["args"] == {"deep": True}
    assert (entry["name"], entry["when"]) == ("night/ly", "at 03:00 mon-fri")
    assert len(entry["next_at"]) == 2
    assert entry["spec"]["misfire"] == "skip"
    await done(rig, "POST", f"{path}/disable")
    assert (await rig.ask(VIEWER, "/v1/timetable"))["rows"][0]["next_at"] == []
    await done(rig, "PUT", path, {**body, "overlap": "all"})
    assert (await rig.ask(VIEWER, path))["spec"]["enabled"] is False
    await done(rig, "PUT", path, {**body, "enabled": True})
    assert (await rig.ask(VIEWER, path))["spec"]["enabled"] is True
    await done(rig, "DELETE", path)
    assert (await rig.ask(VIEWER, "/v1/timetable"))["rows"] == []


async def test_fires_of_an_entry_are_stored_as_soon_as_it_is_declared_or_enabled(rig: Rig):
    # The rig's server does no chores: only these requests create fires.
    async def laid() -> list[int]:
        rows = (await rig.ask(VIEWER, "/v1/jobs", state="scheduled", limit=50))["rows"]
        return sorted(row["fired_at"] for row in rows)

    await done(rig, "PUT", "/v1/timetable/e", ENTRY)
    ahead = (await rig.ask(VIEWER, "/v1/timetable/e", fires=15))["next_at"]
    assert (await laid())[:15] == ahead
    await done(rig, "PUT", "/v1/timetable/e", {**ENTRY, "schedule": "every 10m"})
    ahead = (await rig.ask(VIEWER, "/v1/timetable/e", fires=2))["next_at"]
    assert (await laid())[:2] == ahead
    await done(rig, "POST", "/v1/timetable/e/disable")
    assert await laid() == []
    await done(rig, "POST", "/v1/timetable/e/enable")
    ahead = (await rig.ask(VIEWER, "/v1/timetable/e", fires=2))["next_at"]
    assert (await laid())[:2] == ahead


async def test_entry_shows_its_last_real_fire_and_none_laid_ahead(rig: Rig):
    await done(rig, "PUT", "/v1/timetable/e", ENTRY)
    entry = await rig.ask(VIEWER, "/v1/timetable/e", fires=1)
    assert entry["last_fired"] >= entry["next_at"][0]
    assert entry["last_at"] is None
    now = (await rig.store.read(StatsQuery())).now
    spec = EntrySpec(name="f", schedule=Every(600_000, anchor_at=now), job=new_job())
    await rig.store.define(DefineRequest(items=(DeclareEntry(spec=spec),), author="code"))
    moments = (now, now + 600_000)
    (_, view) = await rig.store.read(TimetableQuery())
    await rig.store.fire(
        FireRequest(entry="f", revision=view.revision, moments=moments, ahead_until=moments[-1])
    )
    assert (await rig.ask(VIEWER, "/v1/timetable/f"))["last_at"] is None
    ask = ClaimRequest(worker="w" * 32, request=1, lanes=(("main", 1),))
    assert len((await rig.store.claim(ask)).jobs) == 1
    assert (await rig.ask(VIEWER, "/v1/timetable/f"))["last_at"] == now
    assert [one["last_at"] for one in (await rig.ask(VIEWER, "/v1/timetable"))["rows"]] == [
        None,
        now,
    ]


def watch_reads(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> list[Query[Any]]:
    """Return a list to which the queries to the store are added from now on."""
    read, asked = rig.store.read, list[Query[Any]]()

    async def watched(query: Query[Any]) -> Any:
        asked.append(query)
        return await read(query)

    monkeypatch.setattr(rig.store, "read", watched)
    return asked


async def test_requests_about_one_entry_read_no_others(rig: Rig, monkeypatch: pytest.MonkeyPatch):
    await done(rig, "PUT", "/v1/timetable/first", ENTRY)
    asked = watch_reads(rig, monkeypatch)
    for name in ("e", "f"):
        path = f"/v1/timetable/{name}"
        await done(rig, "PUT", path, ENTRY)
        for move in ("disable", "enable"):
            await done(rig, "POST", f"{path}/{move}")
        assert (await rig.ask(VIEWER, path))["name"] == name
        reads = [one for one in asked if isinstance(one, TimetableQuery)]
        asked.clear()
        assert {one.names for one in reads} == {(name,)}


async def test_declared_gates_are_read_again_only_after_a_change_of_gates(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("headway.server.service.GATES_FRESH_S", 1e9)
    await done(rig, "PUT", "/v1/gates/n", {"kind": "slots", "capacity": 2})
    asked = watch_reads(rig, monkeypatch)

    async def reads() -> int:
        """Declare an entry with a gate, and return how often the gates were read since the last."""
        await done(rig, "PUT", "/v1/timetable/e", {"schedule": "every 1m", "job": WITH_GATE})
        read = sum(isinstance(one, SpecsQuery) for one in asked)
        asked.clear()
        return read

    assert [await reads(), await reads()] == [1, 0]
    await done(rig, "PATCH", "/v1/gates/n", {"capacity": 3})
    assert await reads() == 1
    await done(rig, "POST", "/v1/closures", {"gate": "n"})
    assert await reads() == 0


async def test_gates_that_are_changed_while_they_are_read_are_read_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
):
    gates, read = DeclaredGates(rig.store, Timing()), rig.store.read

    async def late(query: Query[Any]) -> Any:
        found = await read(query)
        monkeypatch.setattr(rig.store, "read", read)
        await done(rig, "PUT", "/v1/gates/n", {"kind": "slots", "capacity": 3})
        gates.forget()
        return found

    await done(rig, "PUT", "/v1/gates/n", {"kind": "slots", "capacity": 2})
    monkeypatch.setattr(rig.store, "read", late)
    # This request came first, so either answer is right.
    await gates.find(["n"])
    assert (await gates.find(["n"]))["n"].capacity == 3


async def test_listing_of_entries_that_never_fired_searches_no_listing_of_jobs(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
):
    for name in "abc":
        await done(rig, "PUT", f"/v1/timetable/{name}", {**ENTRY, "job": {"kind": name}})
    await done(rig, "PUT", "/v1/timetable/c", {"schedule": "every 2m", "job": {"kind": "c"}})
    asked = watch_reads(rig, monkeypatch)
    rows = (await rig.ask(VIEWER, "/v1/timetable"))["rows"]
    assert [one["last_at"] for one in rows] == [None] * 3
    searched = [one.kind for one in asked if isinstance(one, JobsQuery) and one.ids is None]
    # A fire under its former schedule would not be found by an id.
    assert searched == ["c"]


async def test_expiry_of_an_entrys_jobs_counts_from_each_fire():
    clock = FakeClock()
    app = hw.App(store=MemoryStore(clock))

    @app.job(expires="10m")
    async def tick(job: hw.Job) -> None: ...

    async with serving(app=app) as rig:
        body = {"schedule": "every 1h", "job": {"kind": "tick"}}
        await done(rig, "PUT", "/v1/timetable/e", body)
        reply = await rig.call(OPERATOR, "POST", "/v1/timetable/e/fire")
        now = await rig.ask(VIEWER, f"/v1/jobs/{reply.json()['id']}")
        laid = (await rig.ask(VIEWER, "/v1/jobs", state="scheduled"))["rows"]
    await app.close_async()
    assert laid
    assert all(fire["expires_at"] == fire["fired_at"] + 600_000 for fire in laid)
    assert (now["due_at"], now["expires_at"]) == (clock(), clock() + 600_000)
    assert now["state"] == "waiting"


async def test_entry_whose_jobs_expire_at_the_latest_time_can_be_fired_now(rig: Rig):
    spec = EntrySpec(name="e", schedule=Every(3_600_000), job=new_job(expires_at=LATEST))
    await rig.store.define(DefineRequest(items=(DeclareEntry(spec=spec),), author="code"))
    reply = await rig.call(OPERATOR, "POST", "/v1/timetable/e/fire")
    assert reply.status_code == 201, reply.text
    assert (await rig.ask(VIEWER, f"/v1/jobs/{reply.json()['id']}"))["expires_at"] == LATEST


async def test_cancelled_fire_is_not_among_the_next(rig: Rig):
    await done(rig, "PUT", "/v1/timetable/e", ENTRY)
    await done(rig, "PUT", "/v1/timetable/e", {**ENTRY, "schedule": "every 10m"})
    fires = (await rig.ask(VIEWER, "/v1/timetable/e", fires=4))["next_at"]
    rows = (await rig.ask(VIEWER, "/v1/jobs", state="scheduled", limit=50))["rows"]
    ids = {row["fired_at"]: row["id"] for row in rows}
    reply = await rig.call(OPERATOR, "POST", f"/v1/jobs/{ids[fires[1]]}/cancel")
    assert reply.status_code == 200, reply.text
    left = [fires[0], *fires[2:]]
    assert (await rig.ask(VIEWER, "/v1/timetable/e", fires=3))["next_at"] == left
    assert (await rig.ask(VIEWER, "/v1/timetable"))["rows"][0]["next_at"] == left


async def test_entry_can_be_fired_now_once_per_idempotency_key(rig: Rig):
    job = {"kind": "clean", "lane": "nightly", "args": {"deep": True}}
    body = {"schedule": "every 1h", "job": job, "enabled": False}
    await done(rig, "PUT", "/v1/timetable/e", body)
    keyed = {"headers": {"Idempotency-Key": "k"}}
    made = [
        await rig.call(OPERATOR, "POST", "/v1/timetable/e/fire", **more)
        for more in ({}, {}, keyed, keyed)
    ]
    assert [one.status_code for one in made] == [201, 201, 201, 200]
    assert [one.json()["created"] for one in made] == [True, True, True, False]
    rows = (await rig.ask(VIEWER, "/v1/jobs", lane="nightly"))["rows"]
    assert {one["id"] for one in rows} == {one.json()["id"] for one in made}
    assert {(one["state"], one["entry"], one["args"]["deep"]) for one in rows} == {
        ("waiting", None, True)
    }


async def test_declared_entry_fires(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with serving(url) as live:
        body = {"schedule": "every 1h", "job": {"kind": "noop", "lane": "hourly"}}
        await live.call(OPERATOR, "PUT", "/v1/timetable/e", body)
    # Its chores create the next fires in their first round; the next round comes much later.
    async with serving(url, chores=True) as live:
        for _ in range(600):
            rows = (await live.ask(VIEWER, "/v1/jobs", lane="hourly"))["rows"]
            if rows:
                break
            await live.service.timing.pause(0.05)
        assert {job["entry"] for job in rows} == {"e"}


# ------------------------------------------------------------------------- the whole store


async def test_trail_shows_who_did_what_and_why_page_by_page(rig: Rig):
    for n in range(3):
        await done(rig, "POST", "/v1/closures", {"gate": "all", "reason": f"{n}"})
    rows = await all_pages(rig, "/v1/trail", limit=2)
    ours = [one for one in rows if one["target"] == "all"]
    assert [(one["author"], one["verb"], one["reason"]) for one in ours] == [
        ("operator", "close", "2"),
        ("operator", "close", "1"),
        ("operator", "close", "0"),
    ]
    assert await all_pages(rig, "/v1/trail", limit=2, target="all") == ours


async def test_workers_stats_and_audit_show_the_whole_store(rig: Rig):
    await rig.send(lane="l", gates=[])
    await rig.store.claim(ClaimRequest(worker="w" * 32, request=1, lanes=(("l", 1),)))
    workers = (await rig.ask(VIEWER, "/v1/workers"))["rows"]
    assert [(one["id"], one["running"]) for one in workers] == [("w" * 32, 1)]
    assert (await rig.ask(VIEWER, "/v1/stats"))["counts"] == {"running": 1}
    await done(rig, "PUT", "/v1/gates/a", {"kind": "slots", "capacity": 1})
    audit = await rig.ask(VIEWER, "/v1/audit", limit=1)
    while audit["cursor"] is not None:
        assert audit["differences"] == []
        audit = await rig.ask(VIEWER, "/v1/audit", limit=1, cursor=audit["cursor"])
