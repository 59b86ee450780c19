"""Declarations of a program, sent to a server: kept as a store would, or left to the server."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import Any

import pytest

import headway as hw
from headway.contract.definitions import DefineRequest, LaneSpec, Role, SetLane
from headway.contract.views import EntryView, JobQuery, LanesQuery, SpecsQuery, TimetableQuery
from headway.core.state import State
from headway.stores.memory import MemoryStore
from tests.server.rig import serving


def declare(app: hw.App) -> None:
    app.lane("calls", concurrency=5, target="5s", fair="tenant", weights={"acme": 3})

    @app.job(
        lane="calls",
        gates=[
            hw.Pool("numbers", {"+1": 4, "+2": 8}, strategy="round_robin"),
            hw.Rate("customer:{phone}", 7, per="1h"),
            hw.Hours(
                "hours:{tz}",
                "09:00-12:00,22:00-06:00",
                days="mon-fri",
                tz="{tz}",
                exceptions={"2026-12-25": None, "2026-12-24": "09:00-12:00"},
            ),
            hw.Slots("lines", 3),
        ],
    )
    async def call(phone: str, tz: str) -> None: ...

    @app.job(lane="calls", retry=hw.Backoff(attempts=2))
    async def tidy() -> None: ...

    app.timetable("nightly", tidy, schedule=hw.Cron("0 3 * * *", tz="Europe/Rome"), overlap="one")
    app.timetable("often", tidy, schedule=hw.Every(90_000, anchor_at=7_000))
    app.timetable("early", tidy, schedule=hw.At("06:30", tz="UTC", days="mon-fri"))


async def test_server_keeps_declarations_as_a_store_does() -> None:
    near = MemoryStore()
    local = hw.App(store=near)
    declare(local)
    await local.declare()
    async with serving(tokens=False) as rig:
        far = hw.App(rig.url)
        declare(far)
        await far.declare()
        assert await rig.store.read(SpecsQuery()) == await near.read(SpecsQuery())
        lanes = LanesQuery(names=("calls",))
        (there,), (here,) = await rig.store.read(lanes), await near.read(lanes)
        # A server inserts the fires of declared entries; here a worker would.
        assert {state for state, count in there.counts.items() if count} == {State.SCHEDULED}
        assert not any(here.counts.values())
        assert replace(there, counts=here.counts) == here
        told, kept = await rig.store.read(TimetableQuery()), await near.read(TimetableQuery())
        assert [_entry(one) for one in told] == [_entry(one) for one in kept]
        await far.close_async()
    await near.close()


def _entry(view: EntryView) -> tuple[object, ...]:
    spec, job = view.spec, view.spec.job
    return spec.name, spec.schedule, spec.misfire, spec.overlap, job.kind, job.lane, job.policy


async def test_program_without_permission_to_declare_leaves_it_to_the_server() -> None:
    async with serving() as rig:
        app = hw.App(store=hw.Client(rig.url, rig.tokens[Role.PRODUCER]).store)
        declare(app)
        await app.declare()
        assert await rig.store.read(SpecsQuery()) == ()
        await app.store.close()


async def test_program_with_nothing_to_declare_finds_out_that_the_server_is_unreachable() -> None:
    client = hw.Client("http://127.0.0.1:1", patience="0s")
    app = hw.App(store=client.store)
    with pytest.raises(hw.StoreUnavailable):
        await app.reach("0s")
    await client.close_async()


async def test_reaching_a_server_needs_a_token_that_it_knows_and_no_permission() -> None:
    async with serving() as rig:
        worker = hw.App(store=hw.Client(rig.url, rig.tokens[Role.WORKER]).store)
        await worker.reach("0s")
        stranger = hw.App(store=hw.Client(rig.url, "hw_unknown").store)
        with pytest.raises(hw.Unauthenticated):
            await stranger.reach("0s")
        await worker.store.close()
        await stranger.store.close()


async def test_send_of_a_kind_includes_gates_policy_and_all_options() -> None:
    async with serving(tokens=False) as rig:
        app = hw.App(rig.url)

        @app.job(lane="offers", stages={"check": [], "dial": [hw.Slots("line", 1)]}, expires="1h")
        async def call(phone: str) -> hw.Next:
            return hw.Next("dial")

        @call.stage("dial")
        async def dial(phone: str) -> None: ...

        @app.job(
            lane="offers",
            gates=[hw.Slots("line:{phone}", 2).take(2, hold="run")],
            retry=hw.Backoff(attempts=3, base="5s", jitter="none"),
            timeout="1m",
            keep="1d",
            on_deadline="retry",
        )
        async def whole(phone: str) -> None: ...

        for kind in (call, whole):
            more = {"tenant": "acme", "subject": "s", "key": kind.name, "priority": 7}
            job = kind.make(phone="+1", due="2040-01-01T00:00Z", **more)
            (sent,) = await app.send_many_async([job])
            stored = await rig.store.read(JobQuery(id=sent.id))
            for name in ("id", "kind", "lane", "tenant", "subject", "stage", "args", "priority"):
                assert getattr(stored, name) == getattr(job, name), name
            for name in ("due_at", "expires_at", "key", "gates", "policy"):
                assert getattr(stored, name) == getattr(job, name), name
        await app.close_async()


@pytest.mark.parametrize("job", ["", ".", "..", "a/b", "\ud800", "x" * 3_000], ids=[*"edpsul"])
async def test_text_that_is_no_id_finds_no_job_and_no_other_resource(job: str) -> None:
    async with serving(tokens=False) as rig, hw.Client(rig.url) as client:
        assert await client.job_async(job) is None
        assert await client.why_async(job) is None


@pytest.mark.parametrize("name", [".", ".."])
async def test_name_of_dots_reaches_the_server_as_it_is(name: str) -> None:
    async with serving(tokens=False) as rig, hw.Client(rig.url) as client:
        reply = await client.signal_async(name, event="e", final="succeeded")
        assert reply.answer is hw.SignalResult.KEPT
        lane = SetLane(spec=LaneSpec(name=name, concurrency=3))
        await client.store.define(DefineRequest(items=(lane,), author="ada"))
        (view,) = await rig.store.read(LanesQuery(names=(name,)))
        assert view.spec.concurrency == 3


async def test_arguments_with_nan_and_what_is_no_job_are_refused_for_kinds_given_by_name() -> None:
    async with serving(tokens=False) as rig, hw.Client(rig.url) as client:
        with pytest.raises(hw.InvalidValue, match="the value of args is not JSON-serialisable"):
            await client.send_async("mail", score=math.nan)
        with pytest.raises(hw.InvalidValue, match="the value of args is not JSON-serialisable"):
            await client.send_many_async([{"kind": "mail", "args": {"scores": [math.inf]}}])
        wrong: list[Any] = [5, "mail", {"args": {}}]
        for one in wrong:
            with pytest.raises(hw.InvalidValue, match="a job has no kind"):
                await client.send_many_async([one])
        nothing: Any = None
        with pytest.raises(hw.InvalidValue, match="None is not a list of jobs"):
            await client.send_many_async(nothing)
        with pytest.raises(hw.InvalidValue, match="None is not a list of jobs"):
            await asyncio.to_thread(client.send_many, nothing)
        assert (await client.jobs_async()).rows == ()
        sent = await client.send_async("mail", to="ada", score=None, also={"args": {"to": "bob"}})
        assert (await client.job_async(sent.id)).args == b'{"to":"bob"}'
