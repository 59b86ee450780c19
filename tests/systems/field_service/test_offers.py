"""Offers from outside: forms by HTTP, people at phones, and the resulting record."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from headway.core.retry import Backoff
from headway.core.state import State
from headway.runtime.timing import REAL, Timing
from headway.systems.field_service import kinds, offer_calls
from headway.systems.field_service.live_view import answer, read_live_view
from tests.systems.field_service.field_rig import (
    HERE,
    LIMIT_S,
    LINE,
    SLOW,
    a_field,
    phone_of,
    shorten_first_offer,
)


def said(told: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["technician"], one["said"]) for one in told["asked"]]


async def test_technician_who_presses_one_gets_the_request(tmp_path: Path):
    async with a_field(tmp_path) as field:
        await field.technician("ada", "accept")
        sent = await field.ask()
        assert sent["status"] == "dispatching"
        told = await field.becomes(sent["id"], "assigned")
        assert told["technician"] == "ada"
        assert said(told) == [("ada", "accepted")]
        assert told["offer"] is None
        await field.settled("ring", 1)
        (call,) = field.carrier.network.ledger.calls.values()
        assert (call.plan.to, call.plan.from_) == (phone_of("ada"), LINE)


async def test_decline_continues_with_the_next_nearest_at_once(tmp_path: Path):
    async with a_field(tmp_path) as field:
        await field.technician("cleo", "accept", km=9)
        await field.technician("ada", "decline", km=1)
        await field.technician("bob", "decline", km=3)
        sent = await field.ask()
        told = await field.becomes(sent["id"], "assigned")
        assert said(told) == [("ada", "declined"), ("bob", "declined"), ("cleo", "accepted")]


@pytest.mark.parametrize("answer", ["busy", "ignore", "fails", "refused"])
async def test_unreachable_technician_is_skipped_at_once(tmp_path: Path, answer: str):
    async with a_field(tmp_path) as field:
        await field.technician("ada", answer, km=1)
        await field.technician("bob", "accept", km=2)
        sent = await field.ask()
        told = await field.becomes(sent["id"], "assigned")
        assert said(told) == [("ada", "declined"), ("bob", "accepted")]
        reasons = {
            "busy": "busy",
            "ignore": "no-answer",
            "fails": "failed",
            "refused": "refused: ",
        }
        assert told["asked"][0]["reason"].startswith(reasons[answer])


@pytest.mark.parametrize("channel", ["voice", "text"])
async def test_number_refused_by_the_provider_is_no_answer_of_the_technician(
    tmp_path: Path, channel: str
):
    carrier = {"numbers": ["+15550009999"]}
    async with a_field(tmp_path, carrier=carrier) as field:
        await field.technician("ada", "accept", km=1, channel=channel)
        sent = await field.ask()
        told = await field.becomes(sent["id"], "pending")
        assert said(told) == [("ada", "failed")]
        assert told["asked"][0]["reason"].startswith("number refused: ")
        board = await read_live_view(field.store, field.directory)
        ((asked,),) = [one.asked for one in board.requests]
        assert answer(asked).startswith("could not be asked (number refused: ")


async def test_silence_ends_with_the_timer_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    shorten_first_offer(monkeypatch, 400)
    async with a_field(tmp_path, line_wait="5s") as field:
        await field.technician("ada", "silent", km=1)
        await field.technician("bob", "accept", km=2)
        sent = await field.ask()
        told = await field.becomes(sent["id"], "assigned")
        assert said(told) == [("ada", "timeout"), ("bob", "accepted")]


async def test_request_without_technicians_near_is_pending_at_once_and_alerts_each_dispatcher_once(
    tmp_path: Path,
):
    async with a_field(tmp_path) as field:
        await field.technician("far", "accept", km=80)
        await field.technician("off", "accept", km=1, on_duty=False)
        await field.user("dora", "text:+15557770001", roles=("DISPATCHER",))
        await field.user("dan", "call:+15557770002", roles=("boss", "dispatcher"))
        await field.user("carl", "text:+15557770003", roles=("plumber",))
        field.carrier.person("+15557770001", "ignore")
        field.carrier.person("+15557770002", "talks")
        sent = await field.ask()
        assert sent["status"] == "pending"
        assert sent["reason"] == "exhausted"
        assert "is left to ask" in (await field.get(sent["id"]))["why"]
        alerts = await field.settled("alert_dispatcher", 2)
        assert [one.state for one in alerts] == [State.SUCCEEDED] * 2
        (text,) = field.carrier.network.ledger.texts.values()
        assert text.plan.to == "+15557770001"
        assert sent["id"] in text.plan.text
        (call,) = field.carrier.network.ledger.calls.values()
        assert call.plan.to == "+15557770002"


async def test_dispatcher_without_lines_for_calls_is_alerted_by_text(tmp_path: Path):
    async with a_field(tmp_path, lines={}, text_from=LINE) as field:
        await field.user("dora", "call:+15557770001", "text:+15557770001")
        field.carrier.person("+15557770001", "ignore")
        await field.ask()
        (alert,) = await field.settled("alert_dispatcher", 1)
        assert alert.state is State.SUCCEEDED
        assert len(field.carrier.network.ledger.texts) == 1


async def test_unreached_dispatcher_is_alerted_by_the_next_channel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(offer_calls, "NEXT_CHANNEL_MS", 10)
    async with a_field(tmp_path) as field:
        await field.user("dora", "call:+15557770001", "text:+15557770001")
        field.carrier.person("+15557770001", "busy", "ignore")
        await field.ask()
        (alert,) = await field.settled("alert_dispatcher", 1)
        assert alert.state is State.SUCCEEDED
        assert len(field.carrier.network.ledger.texts) == 1


@pytest.mark.slow
async def test_unconfirmed_alert_is_sent_again_by_the_next_channel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # The limit for the alert's whole call is a tenth of a second.
    monkeypatch.setattr(offer_calls, "SPARE_S", -1.9)
    unheard: dict[str, Any] = {"speed": 0.001, "post_lost": 1.0}
    limits: dict[str, Any] = {"ring": "1s", "call_limit": "1s"}
    async with a_field(tmp_path, carrier=unheard, **limits) as field:
        await field.user("dora", "call:+15557770001", "text:+15557770001")
        await field.ask()
        await field.carrier.until(lambda world: world.ledger.texts, "told by text")
        assert len(field.carrier.network.ledger.calls) == 1


@pytest.mark.parametrize(
    ("channels", "tried"),
    [
        (["text:+15557770001"], 1),
        (["call:+15557770002"], 1),
        (["call:+15557770003"], 1),
        (["text:+15557770001", "call:+15557770002", "call:+15557770003"], 3),
    ],
)
async def test_alert_that_no_channel_delivers_backs_off_before_a_retry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, channels: list[str], tried: int
):
    """Otherwise a short outage of the provider would use up all its attempts."""
    monkeypatch.setattr(offer_calls, "NEXT_CHANNEL_MS", 10)
    monkeypatch.setattr(
        kinds, "_ALERT_RETRY", Backoff(attempts=12, base="1h", factor=1, jitter="none")
    )
    async with a_field(tmp_path) as field:
        await field.user("dora", *channels)
        for phone, answer in (("1", "refused"), ("2", "refused"), ("3", "busy")):
            field.carrier.person(f"+1555777000{phone}", answer)
        await field.ask()
        async with asyncio.timeout(LIMIT_S):
            while True:
                found = await field.jobs("alert_dispatcher")
                failed = [run for one in found for run in one.runs if run.outcome == "failed"]
                if len(failed) == tried and found[0].state is State.SCHEDULED:
                    break
                await REAL.pause(0.01)
        assert found[0].due_at - (failed[-1].ended_at or 0) == 3_600_000
        ends = [run.ended_at or 0 for run in failed]
        assert all(later - end < 3_600_000 for end, later in pairwise(ends))


async def test_alert_without_a_message_provider_uses_the_next_channel_at_once(
    tmp_path: Path,
):
    async with a_field(tmp_path) as field:
        context = field.system.context
        context.settings = context.settings.model_copy(update={"text_provider": None})
        await field.user("dora", "text:+15557770001", "call:+15557770002")
        field.carrier.person("+15557770002", "talks")
        await field.ask()
        (alert,) = await field.settled("alert_dispatcher", 1)
        assert alert.state is State.SUCCEEDED
        refused, chosen, _ = alert.runs
        assert refused.error == "refused: no provider of messages is configured"
        assert chosen.due_at - (refused.ended_at or 0) == offer_calls.NEXT_CHANNEL_MS


async def test_message_without_a_provider_is_dead_at_once(tmp_path: Path):
    async with a_field(tmp_path) as field:
        context = field.system.context
        context.settings = context.settings.model_copy(update={"text_provider": None})
        await field.store.enqueue([context.message("r", "+15557770001", "hello", "why")])
        (text,) = await field.settled("ring_text", 1)
        assert (text.state, len(text.runs)) == (State.DEAD, 1)
        assert text.reason == "refused: no provider of messages is configured"


async def test_ended_offer_is_not_sent_by_message(tmp_path: Path):
    """A reply to it would answer the technician's next offer."""
    async with a_field(tmp_path, work=False, offer_timeout="1h") as field:
        await field.technician("ada", "ignore", channel="text")
        field.work(lanes=["offers", "offers.after"])
        sent = await field.ask()
        await field.asks(sent["id"], "ada")
        assert (await field.say(sent["id"], "decline", "ada")).status_code == 200
        field.work(lanes=["rings"])
        (text,) = await field.settled("ring_text", 1)
        assert (text.state, text.result) == (State.SUCCEEDED, b'{"asked":false}')
        assert not field.carrier.network.ledger.texts


async def test_offer_without_a_line_within_the_wait_goes_to_the_next(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h", line_wait="100ms") as field:
        shut = await field.rig.call(None, "POST", "/v1/closures", {"gate": "field.lines"})
        assert shut.status_code == 200, shut.text
        await field.technician("ada", "accept")
        sent = await field.ask()
        told = await field.becomes(sent["id"], "pending")
        assert said(told) == [("ada", "declined")]
        assert told["asked"][0]["reason"] == "no line was free"
        assert not field.carrier.network.ledger.calls


async def test_only_technicians_without_an_answer_get_the_message_that_it_is_taken(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h", lines={}, text_from=LINE) as field:
        await field.technician("ada", "ignore", km=1)
        await field.technician("bob", "ignore", km=2)
        sent = await field.ask()
        await field.asks(sent["id"], "ada")
        assert (await field.say(sent["id"], "decline", "ada")).status_code == 200
        await field.asks(sent["id"], "bob")
        assert (await field.say(sent["id"], "accept", "bob")).status_code == 200
        await field.settled("offer_taken", 1)
        texts = [one.args for one in await field.jobs("ring_text")]
        assert len(texts) == 2
        assert not [one for one in texts if b"is taken" in one]


@pytest.mark.parametrize("ahead_ms", [3_600_000, -3_600_000])
async def test_machine_with_a_wrong_clock_reviews_each_offer_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead_ms: int
):
    right = Timing.wall_at
    monkeypatch.setattr(Timing, "wall_at", lambda self: right(self) + ahead_ms)
    async with a_field(tmp_path, offer_timeout="20m", lines={}, text_from=LINE) as field:
        await field.technician("ada", "ignore")
        sent = await field.ask()
        await field.asks(sent["id"], "ada")
        job = await field.job(sent["id"])
        assert job.deadline_at is not None
        due_at = max(one.due_at for one in await field.jobs("offer_review"))
        assert job.created_at + 20 * 60_000 <= due_at <= job.deadline_at


async def test_request_declined_by_all_is_pending_with_one_alert(tmp_path: Path):
    async with a_field(tmp_path) as field:
        await field.user("dora", "text:+15557770001")
        for number, name in enumerate(("ada", "bob", "cleo")):
            await field.technician(name, "decline", km=number + 1)
        sent = await field.ask()
        told = await field.becomes(sent["id"], "pending")
        assert said(told) == [(name, "declined") for name in ("ada", "bob", "cleo")]
        (alert,) = await field.settled("alert_dispatcher", 1)
        assert "no technician accepts it" in str(alert.args)


async def test_candidate_is_checked_again_at_his_turn(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h") as field:
        await field.technician("ada", "silent", km=1, skills=("gas",))
        await field.technician("bob", "accept", km=2, skills=("gas",))
        await field.technician("cleo", "accept", km=3, skills=("gas", "heat"))
        sent = await field.ask(skills=["gas"])
        await field.asks(sent["id"], "ada")
        await field.change("bob", on_duty=False)
        await field.change("cleo", skills=["heat"])
        assert (await field.say(sent["id"], "decline", "ada")).status_code == 200
        told = await field.becomes(sent["id"], "pending")
        assert said(told) == [("ada", "declined"), ("bob", "unfit"), ("cleo", "unfit")]
        assert [one["reason"] for one in told["asked"][1:]] == ["off duty", "lacks gas"]


async def test_edited_offer_time_applies_to_the_next_offer(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h", lines={}, text_from=LINE) as field:
        for number, name in enumerate(("ada", "bob")):
            await field.technician(name, "ignore", km=number + 1, channel="text")
        sent = await field.ask(urgency="high")
        first = await field.asks(sent["id"], "ada")
        body = {"offer_timeout": "2h", "urgency": {"high": "3h"}}
        reply = await field.rig.call(None, "PUT", "/field-service/settings", body)
        assert reply.status_code == 200, reply.text
        assert 3_000_000 < first["offer"]["left_ms"] <= 3_600_000
        assert (await field.get(sent["id"]))["offer"]["left_ms"] <= 3_600_000
        await field.say(sent["id"], "decline", "ada")
        second = await field.asks(sent["id"], "bob")
        assert 10_000_000 < second["offer"]["left_ms"] <= 10_800_000


async def test_technician_with_an_open_offer_is_asked_after_the_others(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h") as field:
        await field.technician("ada", "silent", km=1)
        await field.technician("bob", "silent", km=2)
        first = await field.ask()
        await field.asks(first["id"], "ada")
        second = await field.ask()
        told = await field.asks(second["id"], "bob")
        assert told["left"] == ["ada"]
        assert (await field.say(first["id"], "decline", "ada")).status_code == 200
        assert (await field.say(second["id"], "decline", "bob")).status_code == 200
        await field.asks(first["id"], "bob")
        await field.asks(second["id"], "ada")


async def test_technician_with_an_open_offer_is_waited_for_when_all_are_busy(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h") as field:
        await field.technician("ada", "silent")
        first, second = await field.ask(), await field.ask()
        await field.asks(first["id"], "ada")
        told = await field.get(second["id"])
        assert told["status"] == "dispatching"
        assert told["offer"] is None
        assert "technician:ada" in told["why"]
        await field.say(first["id"], "decline", "ada")
        await field.asks(second["id"], "ada")


async def test_first_free_technician_is_asked_though_a_nearer_one_is_waited_for(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h", lines={}) as field:
        await field.technician("ada", km=1)
        await field.technician("bob", km=2)
        first, second, third = [await field.ask() for _ in range(3)]
        await field.asks(first["id"], "ada")
        await field.asks(second["id"], "bob")
        await field.until(third["id"], lambda told: "technician:ada" in told["why"])
        assert (await field.say(second["id"], "decline", "bob")).status_code == 200
        await field.asks(third["id"], "bob")
        assert (await field.get(first["id"]))["offer"]["technician"] == "ada"


async def test_technician_with_another_request_is_skipped_and_not_waited_for(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h") as field:
        await field.technician("ada", "silent")
        first = await field.ask()
        await field.asks(first["id"], "ada")
        second = await field.ask()
        await field.until(second["id"], lambda told: "technician:ada" in told["why"])
        assert (await field.say(first["id"], "accept", "ada")).status_code == 200
        told = await field.becomes(second["id"], "pending")
        assert said(told) == [("ada", "passed_over")]
        third = await field.ask()
        told = await field.becomes(third["id"], "pending")
        assert said(told) == [("ada", "passed_over")]


async def test_lock_is_free_again_when_the_work_is_done(tmp_path: Path):
    async with a_field(tmp_path) as field:
        await field.technician("ada", "accept")
        first = await field.ask()
        await field.becomes(first["id"], "assigned")
        assert (await field.move(first["id"], "complete")).json()["status"] == "completed"
        assert (await field.move(first["id"], "complete")).json()["status"] == "completed"
        second = await field.ask()
        await field.becomes(second["id"], "assigned")
        audit = await field.rig.ask(None, "/v1/audit")
        assert audit["differences"] == []


async def test_ties_go_to_the_longest_idle_and_completing_starts_idleness(tmp_path: Path):
    async with a_field(tmp_path) as field:
        await field.technician("ada", "accept", idle_since=100)
        await field.technician("bob", "accept", idle_since=200)
        first = await field.ask()
        assert (await field.becomes(first["id"], "assigned"))["technician"] == "ada"
        await field.move(first["id"], "complete")
        await field.settled("offer_ended", 1)
        second = await field.ask()
        assert (await field.becomes(second["id"], "assigned"))["technician"] == "bob"


async def test_call_waits_for_a_free_line_and_its_offer_then_lasts_in_full(tmp_path: Path):
    async with a_field(
        tmp_path, lines={LINE: 1}, offer_timeout="1h", line_wait="1h", carrier=SLOW
    ) as field:
        await field.technician("ada", "silent", km=1)
        await field.technician("bob", "accept", km=2)
        first = await field.ask()
        await field.asks(first["id"], "ada")
        await field.carrier.until(lambda world: world.ledger.calls, "called")
        # There is a line: from now on only the offer's own timeout counts, not the wait for a line.
        assert (await field.get(first["id"]))["offer"]["left_ms"] <= 3_600_000
        second = await field.ask()
        told = await field.asks(second["id"], "bob")
        assert told["offer"]["left_ms"] > 3_600_000
        assert len(field.carrier.network.ledger.calls) == 1
        field.carrier.network.pace.speed = 1_000
        await field.say(first["id"], "decline", "ada")
        told = await field.becomes(second["id"], "assigned")
        peaks = field.carrier.network.ledger.peaks()
        assert peaks[LINE] == 1


async def test_emergency_gets_a_busy_technician_before_earlier_requests(tmp_path: Path):
    async with a_field(tmp_path, lines={}, offer_timeout="1h") as field:
        await field.technician("ada")
        first = await field.ask()
        await field.asks(first["id"], "ada")
        urgencies = ("low", "normal", "high", "emergency")
        waiting = [await field.ask(urgency=one) for one in urgencies]
        for one in waiting:
            await field.until(one["id"], lambda told: "technician:ada" in told["why"])
        held = first
        for one in reversed(waiting):
            await field.say(held["id"], "decline", "ada")
            await field.asks(one["id"], "ada")
            held = one


async def test_emergency_gets_a_line_before_earlier_requests(tmp_path: Path):
    async with a_field(
        tmp_path, lines={LINE: 1}, offer_timeout="1h", line_wait="1h", carrier=SLOW
    ) as field:
        await field.technician("ada", "silent", km=1)
        bob = await field.technician("bob", "accept", km=2)
        cat = await field.technician("cat", "accept", km=3)
        first = await field.ask()
        await field.asks(first["id"], "ada")
        ledger = field.carrier.network.ledger
        await field.carrier.until(lambda _: ledger.calls, "called")
        low, emergency = await field.ask(urgency="low"), await field.ask(urgency="emergency")
        await field.asks(low["id"], "bob")
        await field.asks(emergency["id"], "cat")
        field.carrier.network.pace.speed = 1_000
        await field.say(first["id"], "decline", "ada")
        await field.becomes(low["id"], "assigned")
        called = [one.plan.to for one in ledger.calls.values()]
        assert called[1:] == [cat, bob]


async def test_same_key_is_one_request(tmp_path: Path):
    async with a_field(tmp_path) as field:
        await field.technician("ada", "accept")
        first = await field.ask(key="form-1")
        body = {"customer": {"name": "Bo Li", "phone": "+14155550100"}, "position": HERE}
        again = await field.rig.call(
            None, "POST", "/service-requests", {**body, "description": "no heat", "key": "form-1"}
        )
        assert (again.status_code, again.json()["id"]) == (200, first["id"])
        other = await field.rig.call(
            None, "POST", "/service-requests", {**body, "description": "other", "key": "form-1"}
        )
        assert other.status_code == 409


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        ({"customer": {"name": "Bo", "phone": "555"}}, "customer.phone"),
        ({"position": {"lat": 91, "lon": 0}}, "position.lat"),
        ({"urgency": "soon"}, "urgency"),
        ({"position": None}, "neither an address nor a position"),
        ({"position": None, "address": "1 Main St"}, "geocoder_url"),
        ({"skils": ["gas"]}, "skils"),
    ],
)
async def test_invalid_form_is_refused_and_says_where(
    tmp_path: Path, wrong: dict[str, Any], where: str
):
    async with a_field(tmp_path, work=False) as field:
        body = {"customer": {"name": "Bo", "phone": "+14155550100"}, "position": HERE, **wrong}
        reply = await field.rig.call(None, "POST", "/service-requests", body)
        assert reply.status_code == 422
        assert where in reply.text
        assert await field.jobs("offer") == []


async def test_requests_are_listed_by_status_newest_first(tmp_path: Path):
    async with a_field(tmp_path) as field:
        await field.technician("ada", "accept")
        first = await field.ask()
        await field.becomes(first["id"], "assigned")
        second = await field.ask()
        await field.becomes(second["id"], "pending")
        ask = field.rig.ask
        rows = (await ask(None, "/service-requests"))["rows"]
        assert [one["id"] for one in rows] == [second["id"], first["id"]]
        rows = (await ask(None, "/service-requests", status="assigned"))["rows"]
        assert [one["id"] for one in rows] == [first["id"]]
        rows = (await ask(None, "/service-requests", status="dispatching"))["rows"]
        assert rows == []
