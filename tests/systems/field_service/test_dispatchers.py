"""A dispatcher's actions from outside: assign, redispatch, withdraw, complete."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headway.contract.operate import Edit, Verb
from headway.core.cascade import Answer, Asked
from headway.core.errors import InvalidState
from headway.core.state import State
from headway.runtime.timing import REAL
from headway.systems.field_service import kinds
from headway.systems.field_service.dispatching import RequestMoves
from headway.systems.field_service.follow_ups import FollowUps
from headway.systems.field_service.passing_over import pass_over_assigned
from headway.systems.jobs import act
from tests.server.problems import problem
from tests.systems.field_service.field_rig import LIMIT_S, FieldRig, a_field, phone_of


class Turns:
    """Turns that pause before they read the directory, while `held`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.held, self.began, self.goes_on = False, asyncio.Event(), asyncio.Event()
        reads = kinds.current_times

        async def current_times(*args: Any) -> Any:
            if self.held:
                self.began.set()
                await self.goes_on.wait()
            return await reads(*args)

        monkeypatch.setattr(kinds, "current_times", current_times)


async def withdraw_during_a_turn(field: FieldRig, turns: Turns, request: str) -> None:
    """Withdraw a request while a turn of it is paused, and let that turn continue."""
    async with asyncio.timeout(LIMIT_S):
        await turns.began.wait()
        ended = len(await field.jobs("offer_ended"))
        await field.withdraw(request)
        turns.goes_on.set()
        while (await field.job(request)).state is not State.CANCELLED:
            await REAL.pause(0.01)
    # Follow-up jobs of an ending are created in the same step that settles `offer_ended`.
    await field.settled("offer_ended", ended + 1)


async def messages(field: FieldRig) -> list[tuple[str, str]]:
    """Return all requested messages: recipients, and the last words."""
    args = [msgspec.json.decode(one.args) for one in await field.jobs("ring_text")]
    return sorted((one["to"], one["text"].rpartition(": ")[2]) for one in args)


async def test_assigning_ends_open_offers_and_holds_the_lock_without_asking(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h") as field:
        await field.user("dora", "text:+15557770001")
        await field.technician("ada", "ignore", km=1, channel="text")
        await field.technician("bob", "ignore", km=200, on_duty=False)
        sent = await field.ask()
        await field.asks(sent["id"], "ada")
        reply = await field.move(sent["id"], "assign", technician="bob", by="Dora")
        assert reply.status_code == 200, reply.text
        told = await field.becomes(sent["id"], "assigned")
        assert told["technician"] == "bob"
        problem(await field.say(sent["id"], "accept", "ada"), 409, "invalid_state")
        other = await field.ask()
        problem(await field.move(other["id"], "assign", technician="bob"), 409, "invalid_state")
        await field.settled("offer_ended", 1)
        assert await field.jobs("alert_dispatcher") == []
        await field.carrier.until(
            lambda world: [
                one
                for one in world.ledger.texts.values()
                if one.plan.to == phone_of("bob") and "You are assigned" in one.plan.text
            ],
            "told",
        )


async def test_pending_request_can_be_assigned_and_a_busy_technician_waited_for(tmp_path: Path):
    async with a_field(tmp_path) as field:
        await field.technician("ada", "accept", km=1)
        first = await field.ask()
        await field.becomes(first["id"], "assigned")
        second = await field.ask()
        await field.becomes(second["id"], "pending")
        problem(
            await field.move(second["id"], "assign", technician="nobody"), 404, "unknown_record"
        )
        problem(await field.move(second["id"], "assign", technician="ada"), 409, "invalid_state")
        reply = await field.move(second["id"], "assign", technician="ada", wait=True)
        assert reply.json()["status"] == "dispatching"
        await field.until(second["id"], lambda told: "technician:ada" in told["why"])
        await field.move(first["id"], "complete")
        told = await field.becomes(second["id"], "assigned")
        assert told["technician"] == "ada"


async def test_review_that_read_a_request_before_its_assignment_does_not_undo_it(tmp_path: Path):
    async with a_field(tmp_path, work=False, offer_timeout="1h") as field:
        field.work(lanes=["offers", "rings"])
        await field.technician("ada", "accept", km=1)
        first = await field.ask()
        await field.becomes(first["id"], "assigned")
        second = await field.ask()
        read = await field.job(second["id"])
        reply = await field.move(second["id"], "assign", technician="ada", wait=True)
        assert reply.json()["left"] == ["ada"]
        # As it was read, ada is to be passed over, which would leave no one.
        await pass_over_assigned(field.store, read)
        assert (await field.get(second["id"]))["left"] == ["ada"]
        await field.move(first["id"], "complete")
        told = await field.becomes(second["id"], "assigned")
        assert told["technician"] == "ada"


async def test_alert_is_not_sent_once_the_request_is_no_longer_pending(tmp_path: Path):
    async with a_field(tmp_path, work=False) as field:
        await field.user("dora", "text:+15557770001")
        await field.user("dan", "call:+15557770002")
        field.work(lanes=["offers", "rings"])
        sent = await field.ask()
        assert sent["status"] == "pending"
        view = await field.job(sent["id"])
        alerts = await FollowUps(field.system.context)._alerts(view)
        await field.store.enqueue(alerts)
        await field.technician("ada", "ignore")
        await field.move(sent["id"], "assign", technician="ada")
        await field.becomes(sent["id"], "assigned")
        field.work(lanes=["offers.after"])
        told = await field.settled("alert_dispatcher", 2)
        assert [one.result for one in told] == [b'{"needed":false}'] * 2
        assert not field.carrier.network.ledger.calls
        assert "+15557770001" not in [to for to, _ in await messages(field)]


async def test_assigned_request_can_be_given_to_another(tmp_path: Path):
    async with a_field(tmp_path) as field:
        await field.technician("ada", "accept", km=1)
        await field.technician("bob", "ignore", km=99)
        sent = await field.ask()
        await field.becomes(sent["id"], "assigned")
        assert (await field.move(sent["id"], "assign", technician="bob")).status_code == 200
        told = await field.until(sent["id"], lambda told: told["technician"] == "bob")
        assert told["status"] == "assigned"
        again = await field.ask()
        assert (await field.becomes(again["id"], "assigned"))["technician"] == "ada"


async def test_pending_request_is_dispatched_again_to_those_near_now(tmp_path: Path):
    async with a_field(tmp_path) as field:
        await field.user("dora", "text:+15557770001")
        sent = await field.ask()
        assert sent["status"] == "pending"
        assert (await field.move(sent["id"], "redispatch")).json()["status"] == "pending"
        await field.settled("alert_dispatcher", 2)
        await field.technician("ada", "accept")
        assert (await field.move(sent["id"], "redispatch")).json()["status"] == "dispatching"
        told = await field.becomes(sent["id"], "assigned")
        assert told["dispatched"] == 3
        problem(await field.move(sent["id"], "redispatch"), 409, "invalid_state")


async def test_withdrawn_request_hangs_up_and_late_answers_get_a_reply(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h", ring="5m") as field:
        field.carrier.network.pace.speed = 60
        await field.technician("ada", "ignore", km=1)
        await field.technician("bob", "accept", km=2)
        sent = await field.ask()
        await field.asks(sent["id"], "ada")
        await field.carrier.until(lambda world: world.ledger.calls, "called")
        assert (await field.withdraw(sent["id"]))["status"] == "cancelled"
        reply = await field.say(sent["id"], "accept", "ada")
        problem(reply, 409, "invalid_state")
        assert "withdrawn" in reply.text
        (ring,) = await field.settled("ring", 1)
        assert ring.reason == "canceled"
        assert (await field.withdraw(sent["id"]))["status"] == "cancelled"
        told = await field.get(sent["id"])
        assert told["status"] == "cancelled"
        assert len(field.carrier.network.ledger.calls) == 1


async def test_withdrawn_request_releases_and_informs_its_technician(tmp_path: Path):
    async with a_field(tmp_path) as field:
        await field.technician("ada", "accept", "ignore")
        sent = await field.ask()
        await field.becomes(sent["id"], "assigned")
        await field.withdraw(sent["id"])
        await field.carrier.until(
            lambda world: [
                one for one in world.ledger.texts.values() if "withdrawn" in one.plan.text
            ],
            "told",
        )
        other = await field.ask()
        await field.asks(other["id"], "ada")


async def test_request_withdrawn_during_assignment_is_not_announced_to_the_new_technician(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    turns = Turns(monkeypatch)
    async with a_field(tmp_path, offer_timeout="1h") as field:
        await field.technician("ada", "accept", km=1)
        await field.technician("bob", "ignore", km=99)
        sent = await field.ask()
        await field.becomes(sent["id"], "assigned")
        turns.held = True
        assert (await field.move(sent["id"], "assign", technician="bob")).status_code == 200
        with caplog.at_level(logging.WARNING, "headway.worker"):
            await withdraw_during_a_turn(field, turns, sent["id"])
        assert await messages(field) == [(phone_of("ada"), "it was withdrawn.")]
        assert [one for one in caplog.records if one.name == "headway.worker"] == []


async def test_request_withdrawn_in_a_turn_is_not_offered_by_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    turns = Turns(monkeypatch)
    async with a_field(tmp_path, offer_timeout="1h") as field:
        await field.technician("ada", "ignore", channel="text")
        turns.held = True
        sent = await field.ask()
        await withdraw_during_a_turn(field, turns, sent["id"])
        assert await messages(field) == []


async def test_late_follow_up_of_an_assignment_alerts_once_why_the_request_is_pending(
    tmp_path: Path,
):
    async with a_field(tmp_path) as field:
        await field.user("dora", "text:+15557770001")
        sent = await field.ask()
        await field.settled("alert_dispatcher", 1)
        stale = {"job": sent["id"], "state": "dead", "reason": "given to bob by Dora"}
        late = await field.app.send_async("offer_ended", **stale)
        await field.settled("offer_ended", 2)
        job = await field.job(late.id)
        assert (job.state, job.run) == (State.SUCCEEDED, 1)
        (alert,) = await field.jobs("alert_dispatcher")
        assert "no technician accepts it" in str(alert.args)


async def test_late_follow_up_raises_no_alert_while_the_request_is_assigned(tmp_path: Path):
    async with a_field(tmp_path) as field:
        await field.user("dora", "text:+15557770001")
        await field.technician("ada", "accept")
        sent = await field.ask()
        await field.becomes(sent["id"], "assigned")
        # An assignment ends the open offer, and is about to name the next technician.
        await act(field.store, Verb.KILL, sent["id"], author="dora", reason="given to bob by Dora")
        stale = {"job": sent["id"], "state": "dead", "reason": "exhausted"}
        await field.app.send_async("offer_ended", **stale)
        async with asyncio.timeout(LIMIT_S):
            while len(await field.jobs("offer_ended", states=(State.SCHEDULED,))) < 2:
                await REAL.pause(0.01)
        assert await field.jobs("alert_dispatcher") == []


async def test_every_state_but_completed_can_be_withdrawn(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h", lines={}) as field:
        pending = await field.ask()
        assert (await field.withdraw(pending["id"]))["status"] == "cancelled"
        await field.technician("ada")
        open_one, waiting = await field.ask(), await field.ask()
        await field.asks(open_one["id"], "ada")
        assert (await field.withdraw(waiting["id"]))["status"] == "cancelled"
        assert (await field.withdraw(open_one["id"]))["status"] == "cancelled"
        done = await field.ask()
        await field.asks(done["id"], "ada")
        await field.say(done["id"], "accept", "ada")
        await field.move(done["id"], "complete")
        reply = await field.rig.call(None, "DELETE", f"/service-requests/{done['id']}")
        problem(reply, 409, "invalid_state")
        assert {one.state for one in await field.jobs("offer")} == {
            State.CANCELLED,
            State.SUCCEEDED,
        }
        problem(await field.move(open_one["id"], "complete"), 409, "invalid_state")


async def test_technician_who_loses_a_request_gets_one_message(tmp_path: Path):
    async with a_field(tmp_path) as field:
        await field.technician("ada", "accept", km=1)
        await field.technician("bob", "ignore", km=99)
        sent = await field.ask()
        await field.becomes(sent["id"], "assigned")
        for _ in range(2):
            assert (await field.move(sent["id"], "assign", technician="bob")).status_code == 200
            await field.until(sent["id"], lambda told: told["technician"] == "bob")
        await field.settled("ring_text", 2)
        texts = [one.plan for one in field.carrier.network.ledger.texts.values() if not one.inbound]
        gone = [one.to for one in texts if "no longer yours" in one.text]
        given = [one.to for one in texts if "You are assigned" in one.text]
        assert (gone, given) == ([phone_of("ada")], [phone_of("bob")])


async def test_technician_before_two_assignments_gets_a_message_although_only_the_second_has_a_turn(
    tmp_path: Path,
):
    async with a_field(tmp_path) as field:
        await field.technician("ada", "accept", km=1)
        await field.technician("bob", "ignore", km=99)
        await field.technician("cem", "ignore", km=99)
        sent = await field.ask()
        await field.becomes(sent["id"], "assigned")
        await field.stop(next(iter(field.workers)))
        for technician in ("bob", "cem"):
            reply = await field.move(sent["id"], "assign", technician=technician)
            assert reply.status_code == 200, reply.text
        field.work()
        told = await field.becomes(sent["id"], "assigned")
        assert told["technician"] == "cem"
        await field.settled("ring_text", 2)
        assert [to for to, _ in await messages(field)] == [phone_of("ada"), phone_of("cem")]


async def test_request_that_is_assigned_during_its_completion_is_not_reported_as_completed(
    tmp_path: Path,
):
    async with a_field(tmp_path) as field:
        await field.technician("ada", "accept", km=1)
        await field.technician("bob", "ignore", km=99)
        sent = await field.ask()
        await field.becomes(sent["id"], "assigned")
        mover = RequestMoves(context=field.system.context, author="dora")
        for at, other in enumerate(("assigned", "withdrawn")):
            read = await field.job(sent["id"])
            if other == "assigned":
                assert (await field.move(sent["id"], "assign", technician="bob")).status_code == 200
                await field.becomes(sent["id"], "assigned")
            else:
                await field.withdraw(sent["id"])
            with pytest.raises(InvalidState, match=("assigned to bob", "is cancelled")[at]):
                await mover.complete(read)


async def test_assignment_keeps_an_edit_of_the_request_made_meanwhile(tmp_path: Path):
    async with a_field(tmp_path, work=False) as field:
        await field.technician("ada")
        sent = await field.ask()
        read = await field.job(sent["id"])
        args = read.args.replace(b"no heat", b"no water")
        edit = Edit(args=args)
        await act(field.store, Verb.EDIT, sent["id"], author="dan", edit=edit)
        mover = RequestMoves(context=field.system.context, author="dora")
        await mover.assign(read, "ada", by="dora", wait=False)
        told = await field.get(sent["id"])
        assert (told["description"], told["left"]) == ("no water", ["ada"])


async def test_late_follow_up_of_a_withdrawal_sends_nothing_to_the_technician_assigned_since(
    tmp_path: Path,
):
    async with a_field(tmp_path, work=False) as field:
        field.work(lanes=["offers", "rings"])
        await field.technician("ada", "accept", km=1)
        await field.technician("bob", "ignore", km=99)
        sent = await field.ask()
        await field.becomes(sent["id"], "assigned")
        await field.withdraw(sent["id"])
        assert (await field.move(sent["id"], "assign", technician="bob")).status_code == 200
        await field.becomes(sent["id"], "assigned")
        field.work(lanes=["offers.after"])
        await field.settled("offer_ended", 1)
        found = [words for to, words in await messages(field) if to == phone_of("bob")]
        assert len(found) == 1
        assert "withdrawn" not in found[0]


@pytest.mark.parametrize("move", ["assign", "redispatch"])
async def test_request_that_is_withdrawn_during_a_move_stays_withdrawn(tmp_path: Path, move: str):
    async with a_field(tmp_path, work=False) as field:
        sent = await field.ask()
        read = await field.job(sent["id"])
        await field.technician("ada")
        await field.withdraw(sent["id"])
        mover = RequestMoves(context=field.system.context, author="dora")
        moves = {
            "assign": lambda: mover.assign(read, "ada", by="dora", wait=False),
            "redispatch": lambda: mover.redispatch(read),
        }
        with pytest.raises(InvalidState, match="withdrawn"):
            await moves[move]()
        assert (await field.job(sent["id"])).state is State.CANCELLED


async def test_late_follow_up_of_an_acceptance_sends_nothing_about_a_later_offer(tmp_path: Path):
    async with a_field(tmp_path, work=False) as field:
        await field.technician("ada")
        view = await field.job((await field.ask())["id"])
        timeout = Asked(candidate="ada", answer=Answer.TIMEOUT, at=0)
        assert view.cascade is not None
        later = replace(view, run=2, cascade=replace(view.cascade, asked=(timeout,)))
        follow_ups = FollowUps(field.system.context)
        found = [await follow_ups._messages(later, "bob", run) for run in (1, 2)]
        assert [len(one) for one in found] == [0, 1]
