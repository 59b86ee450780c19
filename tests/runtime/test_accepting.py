"""Offers that are accepted, and whose jobs then wait for their final signal."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import headway as hw
from headway.contract.views import GatesQuery
from headway.core.errors import InvalidValue
from tests.runtime.observed_store import ObservedStore, soon, working

LOCK = hw.Slots("technician:{candidate}", 1)


async def test_accepted_offer_keeps_its_lock_until_done(app: hw.App, store: ObservedStore) -> None:
    told: list[tuple[str, str, str, int]] = []
    taken = asyncio.Event()

    @app.job(lane="news")
    async def offer_taken(job: str, state: str, candidate: str, run: int) -> None:
        told.append((job, state, candidate, run))
        taken.set()

    @app.job(cascade=True, gates=[LOCK], on_accepted=offer_taken)
    async def offer(job: hw.Job, address: str) -> None:
        await job.offer(timeout="5m")

    sent = await app.send_async(offer, address="1 Main St", candidates=["ada", "bob"])
    async with working(app):
        await store.becomes(sent.id, "awaiting")
        first = await app.signal_async(f"{sent.id}:1", event="e1", final="accepted")
        await soon(taken)
        view = await store.job(sent.id)
        late = await app.signal_async(f"{sent.id}:1", event="e2", final="accepted")
        call_end = await app.signal_async(f"{sent.id}:1", event="e3", final="dead", offer=True)
        (lock,) = (await store.read(GatesQuery(names=("technician:ada",)))).rows
        await app.signal_async(f"{sent.id}:1", event="e4", final="succeeded")
        done = await store.ends(sent.id)
    assert (first.answer, first.state) == ("applied", "awaiting")
    assert (late.answer, call_end.answer) == ("late", "late")
    assert told == [(sent.id, "accepted", "ada", 1)]
    assert (view.state, view.cascade.accepted, view.deadline_at) == ("awaiting", "ada", None)
    assert [holder.job for holder in lock.holders] == [sent.id]
    assert (done.state, done.reason) == ("succeeded", "accepted by ada")


async def test_reconcile_answer_does_not_override_an_acceptance(
    app: hw.App, store: ObservedStore
) -> None:
    asked, answered = asyncio.Event(), asyncio.Event()

    @app.job(lane="news")
    async def offer_taken(job: str, state: str, candidate: str, run: int) -> None: ...

    @app.job(cascade=True, on_accepted=offer_taken)
    async def offer(job: hw.Job) -> None:
        await job.offer(timeout="1ms")

    @offer.reconcile
    async def ask(awaited: hw.Awaited) -> object:
        asked.set()
        await soon(answered)
        return hw.Ended("dead", reason="the call is over")

    sent = await app.send_async(offer, candidates=["ada"])
    async with working(app):
        await soon(asked)
        await app.signal_async(f"{sent.id}:1", event="e1", final="accepted")
        answered.set()

        async def said() -> bool:
            return len(store.asked("signal")) == 2

        await store.until(said)
        view = await store.job(sent.id)
    assert [reply.answer for _, reply in store.asked("signal")] == ["applied", "late"]
    assert (view.state, view.cascade.accepted) == ("awaiting", "ada")


def test_only_a_cascade_has_an_on_accepted_job(app: hw.App) -> None:
    with pytest.raises(InvalidValue, match="is not a cascade"):

        @app.job(on_accepted="taken")
        async def work() -> None: ...


async def test_kind_that_cannot_take_the_acceptance_arguments_is_refused(app: hw.App) -> None:
    @app.job()
    async def taken(job: str, reason: str) -> None: ...

    @app.job(cascade=True, on_accepted=taken)
    async def offer() -> None: ...

    with pytest.raises(InvalidValue, match="cannot take the arguments it gets"):
        await app.send_async(offer, candidates=["ada"])


def test_policy_names_the_kind_and_its_lane(app: hw.App) -> None:
    @app.job(lane="news")
    async def taken(**told: Any) -> None: ...

    @app.job(cascade=True, on_accepted="taken")
    async def offer() -> None: ...

    follow = offer.policy.on_accepted
    assert follow is not None
    assert (follow.kind, follow.lane) == ("taken", "news")
