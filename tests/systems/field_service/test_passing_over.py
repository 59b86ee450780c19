"""Technicians who have another request never delay a turn, whatever triggered it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from headway.contract.claims import ClaimRequest
from headway.contract.definitions import CloseGate, DefineRequest
from headway.contract.outcomes import FoundUnfit, SettleRequest
from headway.contract.views import JobView
from headway.core.job import NewJob
from headway.runtime.job import Job
from headway.runtime.timing import REAL
from headway.systems.field_service import follow_ups
from headway.systems.field_service.follow_ups import FollowUps
from headway.systems.field_service.passing_over import pass_over_assigned
from tests.systems.field_service.field_rig import LIMIT_S, FieldRig, a_field


async def assigned(field: FieldRig, technician: str) -> str:
    """Assign a request to a technician, who is then busy for long; return its id."""
    sent = await field.ask()
    assert (await field.move(sent["id"], "assign", technician=technician)).status_code == 200
    await field.becomes(sent["id"], "assigned")
    return sent["id"]


async def claimed(field: FieldRig, number: int) -> list[tuple[str, str]]:
    """Claim from the lane of offers; return each request with its candidate."""
    asked = ClaimRequest(worker="w" * 32, request=number, lanes=(("offers", 1),), free=1)
    return [(one.id, one.candidate) for one in (await field.store.claim(asked)).jobs]


def left(request: JobView) -> tuple[str, ...]:
    assert request.cascade is not None
    return request.cascade.left


async def test_redispatched_request_does_not_wait_for_a_technician_with_another(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h", lines={}) as field:
        sent = await field.ask()
        assert sent["status"] == "pending"
        await field.technician("ada")
        await assigned(field, "ada")
        await field.move(sent["id"], "redispatch")
        told = await field.becomes(sent["id"], "pending")
        assert [one["said"] for one in told["asked"]] == ["passed_over"]


@pytest.mark.parametrize("channel", ["voice", "text"])
async def test_declining_does_not_leave_it_waiting_for_a_technician_with_another(
    tmp_path: Path, channel: str
):
    async with a_field(tmp_path, offer_timeout="1h") as field:
        await field.technician("ada", "decline", km=1, channel=channel)
        await field.technician("bob", km=2)
        await assigned(field, "bob")
        sent = await field.ask()
        told = await field.becomes(sent["id"], "pending")
        assert [one["said"] for one in told["asked"]] == ["declined", "passed_over"]


async def test_technician_who_declines_in_two_dispatches_leaves_it_waiting_in_neither(
    tmp_path: Path,
):
    async with a_field(tmp_path, offer_timeout="1h", lines={}) as field:
        await field.technician("ada", km=1)
        await field.technician("bob", km=2)
        await assigned(field, "bob")
        sent = await field.ask()
        for _ in range(2):
            await field.asks(sent["id"], "ada")
            assert (await field.say(sent["id"], "decline", "ada")).status_code == 200
            await field.becomes(sent["id"], "pending")
            await field.move(sent["id"], "redispatch")


async def test_unfit_candidate_does_not_leave_it_waiting_for_a_technician_with_another(
    tmp_path: Path,
):
    async with a_field(tmp_path, offer_timeout="1h", lines={}) as field:
        await field.technician("ada", km=1)
        await field.technician("bob", km=2)
        await assigned(field, "bob")
        await field.stop(next(iter(field.workers)))
        sent = await field.ask()
        await field.directory.close()
        field.work()
        # The turn is postponed; the review at its intake finds ada free.
        await field.until(sent["id"], lambda told: "scheduled" in told["why"])
        async with asyncio.timeout(LIMIT_S):
            mine = {"subject": sent["id"], "tenant": ""}
            while not any(one.finished_at for one in await field.jobs("offer_review", **mine)):
                await REAL.pause(0.01)
        await field.directory.open()
        await field.change("ada", on_duty=False)
        await field.rig.call(None, "POST", f"/v1/jobs/{sent['id']}/run-now")
        told = await field.becomes(sent["id"], "pending")
        assert [one["said"] for one in told["asked"]] == ["unfit", "passed_over"]


async def test_request_waiting_for_the_nearest_asks_those_free_again_first(
    tmp_path: Path,
):
    async with a_field(tmp_path, offer_timeout="1h", lines={}) as field:
        await field.technician("ada", km=1)
        await field.technician("bob", km=2)
        await assigned(field, "ada")
        second = await assigned(field, "bob")
        await field.stop(next(iter(field.workers)))
        sent = await field.ask()
        assert await claimed(field, 1) == []
        waits = await field.job(sent["id"])
        assert (waits.state, left(waits)) == ("parked", ("ada", "bob"))
        assert (await field.move(second, "complete")).status_code == 200
        await pass_over_assigned(field.store, await field.job(sent["id"]))
        assert left(await field.job(sent["id"])) == ("bob", "ada")
        assert await claimed(field, 2) == [(sent["id"], "bob")]


async def test_review_that_read_a_request_before_an_offer_does_not_repeat_the_offer(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h", lines={}) as field:
        await field.technician("ada", km=1)
        await field.technician("bob", km=2)
        first, second = await assigned(field, "ada"), await assigned(field, "bob")
        await field.stop(next(iter(field.workers)))
        sent = await field.ask()
        assert await claimed(field, 1) == []
        for one in (second, first):
            read = await field.job(sent["id"])
            assert (await field.move(one, "complete")).status_code == 200
        assert await claimed(field, 2) == [(sent["id"], "ada")]
        unfit = FoundUnfit(sent["id"], 1)
        await field.store.settle(SettleRequest(worker="w" * 32, outcomes=(unfit,)))
        # As it was read, ada is free again, and is to be asked before bob.
        await pass_over_assigned(field.store, read)
        assert left(await field.job(sent["id"])) == ("bob",)


async def test_no_one_is_skipped_while_an_operator_has_closed_the_gate_of_another(
    tmp_path: Path,
):
    async with a_field(tmp_path, offer_timeout="1h", lines={}) as field:
        await field.technician("ada", km=1)
        await field.technician("bob", km=2)
        await assigned(field, "bob")
        await field.stop(next(iter(field.workers)))
        closing = CloseGate(name="technician:ada")
        await field.store.define(DefineRequest(items=(closing,), author="dora"))
        sent = await field.ask()
        await pass_over_assigned(field.store, await field.job(sent["id"]))
        assert left(await field.job(sent["id"])) == ("ada", "bob")


async def test_request_waiting_for_the_dispatchers_choice_is_not_skipped(
    tmp_path: Path,
):
    async with a_field(tmp_path, offer_timeout="1h", lines={}) as field:
        await field.user("dora", "text:+15557770001")
        await field.technician("ada", km=1)
        await field.technician("bob", km=2)
        first, second = await field.ask(), await field.ask()
        await field.asks(first["id"], "ada")
        await field.say(first["id"], "accept", "ada")
        await field.asks(second["id"], "bob")
        reply = await field.move(second["id"], "assign", technician="ada", wait=True)
        assert reply.status_code == 200, reply.text
        # The follow-up of bob's ended offer is done, and a review of the request with it.
        await field.settled("offer_ended", 1)
        await field.settled("offer_review", len(await field.jobs("offer_review")) - 2)
        await field.until(second["id"], lambda told: "technician:ada" in told["why"])
        await field.move(first["id"], "complete")
        told = await field.becomes(second["id"], "assigned")
        assert told["technician"] == "ada"
        assert await field.jobs("alert_dispatcher") == []


async def test_every_request_that_waits_for_an_assigned_technician_is_reviewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(follow_ups, "MAX_BATCH", 2)
    async with a_field(tmp_path, offer_timeout="1h", lines={}) as field:
        await field.technician("ada")
        await field.stop(next(iter(field.workers)))
        taken, *others = [(await field.ask())["id"] for _ in range(6)]
        then: list[NewJob] = []
        me = cast("Job", SimpleNamespace(id=taken, then=lambda *jobs: then.extend(jobs)))
        before = await field.jobs("offer_review")
        for _ in range(2):
            await FollowUps(field.system.context).taken(me, taken, "", "ada", 1)
        stored = [one for one in await field.jobs("offer_review") if one not in before]
        assert [one.subject for one in then] == 2 * [taken, others[0]]
        assert sorted(str(one.subject) for one in stored) == sorted(others[1:])
