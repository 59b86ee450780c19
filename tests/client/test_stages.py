"""Stages and offers over HTTP: what is sent to a server, and what only a store accepts."""

from __future__ import annotations

from dataclasses import replace

import pytest

import headway as hw
from headway.contract.operate import ActRequest, Edit, Verb
from headway.contract.outcomes import Failed, SettleRequest
from headway.contract.signals import Decided, Signal
from headway.core.state import State
from tests.client.waiting import at_work, final
from tests.server.rig import serving

LINE = hw.Slots("line", 1)


async def test_next_stage_uses_the_gates_chosen_by_its_handler() -> None:
    app, seen = hw.App("memory://"), list[str]()

    @app.job(stages={"check": [], "dial": []})
    async def call(phone: str) -> object:
        await app.declare_gates(hw.Pool("numbers", {"+1": 1}), hw.Slots("phone:{phone}", 1))
        return hw.Next("dial", gates=[hw.Pool("numbers", {}), hw.Slots("phone:{phone}", 1)])

    @call.stage("dial")
    async def dial(job: hw.Job) -> None:
        seen.append(job.permits["numbers"])

    async with serving(tokens=False) as rig, at_work(rig.url, app) as client:
        sent = await client.send_async(call, phone="7")
        assert await final(rig, sent.id) is State.SUCCEEDED
        view = await client.job_async(sent.id)
        assert view is not None
        assert {use.name for use in view.gates} == {"numbers", "phone:7"}
    assert seen == ["+1"]


async def test_retry_at_another_stage_fails_the_run_and_says_why() -> None:
    app = hw.App("memory://")

    @app.job(stages={"check": []}, retry=hw.Backoff(attempts=1))
    async def call() -> None:
        raise hw.Retry("busy", stage="check")

    async with serving(tokens=False) as rig, at_work(rig.url, app) as client:
        sent = await client.send_async(call)
        assert await final(rig, sent.id) is State.DEAD
        view = await client.job_async(sent.id)
        assert view is not None
        assert "does not set the stage of the next attempt" in view.error


async def test_option_only_for_stores_is_refused_before_anything_is_sent() -> None:
    async with serving(tokens=False) as rig:
        client = hw.Client(rig.url)
        store = client.remote
        failed = Failed("01a1", 1, stage="check")
        again = Signal(key="sid", event="e", decided=Decided.RETRY, stage="check")
        edits = Edit(stage="check"), Edit(gates=()), Edit(candidates=("ada",)), Edit(if_run=1)
        moves = [(Verb.EDIT, edit, ()) for edit in edits]
        moves.append((Verb.CANCEL, Edit(), (State.WAITING,)))
        try:
            with pytest.raises(hw.InvalidValue, match="does not set the stage of the next attempt"):
                await store.settle(SettleRequest(worker="w", outcomes=(failed,)))
            with pytest.raises(hw.InvalidValue, match="does not set the stage of the next attempt"):
                await store.signal(again)
            for verb, edit, states in moves:
                named = ActRequest(request="r", ids=("a",), verb=verb, author="ann")
                move = replace(named, edit=edit, states=states)
                with pytest.raises(hw.InvalidValue, match="stage, gates or candidates"):
                    await store.act(move)
        finally:
            await client.close_async()


async def test_kind_with_lasting_offers_is_sent_over_http_with_its_follow_ups() -> None:
    app = hw.App("memory://")

    @app.job(lane="news")
    async def taken(job: str, state: str, candidate: str, run: int) -> None: ...

    @app.job(cascade=True, on_accepted=taken)
    async def offer(job: hw.Job) -> None:
        await job.offer()

    async with serving(tokens=False) as rig:
        client = hw.Client(rig.url)
        try:
            sent = await client.send_async(offer, candidates=["ada"])
            view = await client.job_async(sent.id)
        finally:
            await client.close_async()
        assert view is not None
        assert view.policy == offer.policy
        said = {"kind": "offer", "on_accepted": {"kind": "taken"}}
        reply = await rig.call(None, "POST", "/v1/jobs", said)
        assert reply.status_code == 422
        assert "on_accepted requires a cascade" in reply.text
