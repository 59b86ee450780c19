"""No technician is asked during a call: the next offer waits for the end of the call."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headway.carrier.ledger import CarrierLedger
from headway.carrier.network import PhoneNetwork
from headway.contract.views import StatsQuery
from headway.core.errors import ProviderUnsure
from headway.core.job import derived_id
from headway.core.state import State
from headway.runtime.handler_results import Ended, Running
from headway.runtime.reconciliation import Awaited
from headway.runtime.timing import REAL, Timing
from headway.systems.field_service import offer_calls
from headway.systems.field_service.follow_ups import hang_up_others
from headway.systems.field_service.offer_calls import Ring, certain_ms, given_up_ms
from headway.systems.field_service.request import LINES
from headway.systems.telephony.voice import CallEvent, CallStatus, NotFound
from tests.systems.field_service.field_rig import LIMIT_S, LINE, SLOW, FieldRig, a_field, phone_of
from tests.systems.field_service.history_checks import calls_at_once


async def nothing(*_: object) -> None:
    """Do nothing; replaces a provider that accepts a request and ignores it."""


def a_second(_: object) -> int:
    """Return a duration in ms that replaces minutes."""
    return 1_000


async def on_the_telephone(field: FieldRig, name: str) -> PhoneNetwork:
    """Let a technician decline a request by API, while the call about it continues."""
    world = field.carrier.network
    world.hang_up = nothing  # type: ignore[method-assign]  (a request to hang up has no effect)
    sent = await field.ask()
    await field.asks(sent["id"], name)
    await field.carrier.until(lambda one: one.ledger.calls, "called")
    assert (await field.say(sent["id"], "decline", name)).status_code == 200
    return world


async def end(world: PhoneNetwork, name: str) -> None:
    """End a technician's call."""
    calls = world.ledger.calls.values()
    (sid,) = [one.sid for one in calls if one.plan.to == phone_of(name) and one.ended_at is None]
    await PhoneNetwork.hang_up(world, sid)


def calls_of(ledger: CarrierLedger) -> list[str]:
    return [one.plan.to for one in ledger.calls.values()]


async def test_next_offer_waits_until_the_call_has_ended(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h", carrier=SLOW) as field:
        await field.technician("ada", "silent")
        world = await on_the_telephone(field, "ada")
        second = await field.ask()
        told = await field.until(second["id"], lambda told: "technician.call:ada" in told["why"])
        assert (told["status"], told["offer"], told["asked"]) == ("dispatching", None, [])
        assert len(calls_of(world.ledger)) == 1
        await end(world, "ada")
        await field.asks(second["id"], "ada")
        await field.carrier.until(lambda one: len(one.ledger.calls) == 2, "called again")
        assert calls_at_once(world.ledger) == []
        assert (await field.rig.ask(None, "/v1/audit"))["differences"] == []


async def test_call_in_which_the_technician_declines_ends_by_itself(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h", carrier=SLOW) as field:
        world, hung_up = field.carrier.network, list[str]()

        async def hang_up(sid: str) -> None:
            hung_up.append(sid)

        world.hang_up = hang_up  # type: ignore[method-assign]
        await field.technician("ada", "silent")
        sent = await field.ask()
        await field.asks(sent["id"], "ada")
        await field.carrier.until(lambda one: one.ledger.calls, "called")
        await field.ringing()
        (sid,) = [one.sid for one in world.ledger.calls.values()]
        pressed = {"CallSid": sid, "CallStatus": "in-progress", "Digits": "2"}
        await field.hook(f"answer?ref={sent['id']}:1", **pressed)
        await field.becomes(sent["id"], "pending")
        # It still reports that they have declined.
        assert await hang_up_others(field.system.context, await field.job(sent["id"]))
        assert hung_up == []


async def test_report_about_another_call_does_not_end_the_current_one(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h", carrier=SLOW) as field:
        await field.technician("ada", "silent")
        sent = await field.ask()
        await field.asks(sent["id"], "ada")
        ring = await field.ringing()
        for sid, state in (("CA" + "9" * 32, State.AWAITING), (None, State.SUCCEEDED)):
            (own,) = [one.sid for one in field.carrier.network.ledger.calls.values()]
            said = {"CallSid": sid or own, "CallStatus": "completed"}
            assert (await field.hook(f"status?ref={ring.id}:1", **said)).status_code == 204
            assert (await field.job(ring.id)).state is state


async def test_key_pressed_in_another_call_answers_no_offer(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h", carrier=SLOW) as field:
        await field.technician("ada", "silent")
        sent = await field.ask()
        await field.asks(sent["id"], "ada")
        await field.ringing()
        (own,) = [one.sid for one in field.carrier.network.ledger.calls.values()]
        for sid, says, status in (
            ("CA" + "9" * 32, "This offer is not known.", "dispatching"),
            (own, "You have it", "assigned"),
        ):
            said = {"CallSid": sid, "CallStatus": "in-progress", "Digits": "1"}
            reply = await field.hook(f"answer?ref={sent['id']}:1", **said)
            assert says in reply.text
            assert (await field.get(sent["id"]))["status"] == status


async def test_technician_on_the_phone_is_asked_after_the_others(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h", carrier=SLOW) as field:
        await field.technician("ada", "silent", km=1)
        await field.technician("bob", "silent", km=2)
        await field.change("bob", on_duty=False)
        await on_the_telephone(field, "ada")
        await field.change("bob", on_duty=True)
        second = await field.ask()
        assert (await field.asks(second["id"], "bob"))["left"] == ["ada"]


async def test_request_that_waits_for_another_goes_to_who_hangs_up_first(
    tmp_path: Path,
):
    async with a_field(tmp_path, offer_timeout="1h", carrier=SLOW) as field:
        await field.technician("ada", "silent", km=2)
        await field.technician("bob", "silent", km=1)
        await field.change("bob", on_duty=False)
        world = await on_the_telephone(field, "ada")
        await field.change("bob", on_duty=True)
        second = await field.ask()
        await field.asks(second["id"], "bob")
        third = await field.ask()
        await field.until(third["id"], lambda told: "technician:bob" in told["why"])
        await end(world, "ada")
        await field.asks(third["id"], "ada")
        assert (await field.get(second["id"]))["offer"]["technician"] == "bob"


async def test_technician_with_another_request_is_skipped_while_one_on_the_phone_is_waited_for(
    tmp_path: Path,
):
    async with a_field(tmp_path, offer_timeout="1h", carrier=SLOW) as field:
        await field.technician("ada", "silent", km=2)
        await field.technician("bob", "silent", km=1)
        await field.change("bob", on_duty=False)
        world = await on_the_telephone(field, "ada")
        await field.change("bob", on_duty=True)
        second = await field.ask()
        await field.asks(second["id"], "bob")
        third = await field.ask()
        await field.until(third["id"], lambda told: "technician:bob" in told["why"])
        assert (await field.say(second["id"], "accept", "bob")).status_code == 200
        told = await field.until(third["id"], lambda told: told["left"] == ["ada"])
        assert [one["said"] for one in told["asked"]] == ["passed_over"]
        await end(world, "ada")
        await field.asks(third["id"], "ada")


async def test_dispatcher_can_assign_a_technician_who_is_on_the_phone(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h", carrier=SLOW) as field:
        await field.technician("ada", "silent")
        world = await on_the_telephone(field, "ada")
        second = await field.ask()
        reply = await field.move(second["id"], "assign", technician="ada", by="Dora")
        assert reply.status_code == 200
        told = await field.becomes(second["id"], "assigned")
        assert told["technician"] == "ada"
        assert len(calls_of(world.ledger)) == 1
        # When it is offered again, it waits for the end of the call like any other request.
        await field.withdraw(second["id"])
        reply = await field.move(second["id"], "redispatch")
        assert reply.status_code == 200
        await field.until(second["id"], lambda told: "technician.call:ada" in told["why"])


async def test_lost_end_is_queried_and_the_next_offer_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(offer_calls, "ASK_EACH_S", 0.1)
    async with a_field(tmp_path, offer_timeout="1h", carrier={"post_lost": 1.0}) as field:
        await field.technician("ada", "silent")
        first = await field.ask()
        await field.asks(first["id"], "ada")
        second = await field.ask()
        assert (await field.say(first["id"], "decline", "ada")).status_code == 200
        await field.asks(second["id"], "ada")
        assert calls_at_once(field.carrier.network.ledger) == []


async def test_call_whose_end_is_not_reported_blocks_no_technician_forever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(offer_calls, "ASK_EACH_S", 0.1)
    monkeypatch.setattr(offer_calls, "given_up_ms", a_second)
    slow: dict[str, Any] = {**SLOW, "post_lost": 1.0}
    async with a_field(tmp_path, offer_timeout="1h", carrier=slow) as field:
        await field.technician("ada", "silent")
        await on_the_telephone(field, "ada")
        second = await field.ask()
        await field.asks(second["id"], "ada")
        first = min(await field.jobs("ring"), key=lambda one: one.created_at)
        assert (first.state, first.reason) == (State.DEAD, "deadline")
        held = first.finished_at - (first.runs[0].handed_at or 0) if first.finished_at else 0
        assert held >= 1_000


async def test_call_with_an_unknown_end_does_not_end_its_offer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(offer_calls, "ASK_EACH_S", 0.1)
    monkeypatch.setattr(offer_calls, "given_up_ms", a_second)
    silent: dict[str, Any] = {**SLOW, "post_lost": 1.0}
    async with a_field(tmp_path, offer_timeout="1h", carrier=silent) as field:
        await field.technician("ada", "silent")
        sent = await field.ask()
        (call,) = await field.settled("ring", 1)
        assert (call.state, call.reason) == (State.DEAD, "deadline")
        await field.settled("ring_ended", 1)
        assert (await field.get(sent["id"]))["offer"]["technician"] == "ada"


LIMITS: dict[str, Any] = {"ring": "30s", "call_limit": "5m"}
GIVEN_UP_S = 2 * (30 + 300 + 60)
CERTAIN_S = 10 + 15 + 20


@pytest.mark.parametrize(
    ("said", "past_s", "answer", "extend_s"),
    [
        (CallStatus.IN_PROGRESS, 1, Running, 10),
        (CallStatus.IN_PROGRESS, GIVEN_UP_S - 5, Running, 10),
        (CallStatus.IN_PROGRESS, GIVEN_UP_S, Ended, None),
        (CallStatus.COMPLETED, 1, Ended, None),
        (NotFound.NO_CALL, 5, Running, CERTAIN_S - 5),
        (NotFound.NO_CALL, CERTAIN_S, Ended, None),
        (NotFound.UNCLEAR, 5, Running, CERTAIN_S - 5),
        (NotFound.UNCLEAR, CERTAIN_S, Ended, None),
        ("unsure", CERTAIN_S, Running, 10),
        ("unsure", GIVEN_UP_S, Ended, None),
        ("no line", CERTAIN_S, Running, 10),
        ("no line", GIVEN_UP_S, Ended, None),
    ],
)
async def test_provider_answer_decides_until_the_limit(
    tmp_path: Path, said: object, past_s: int, answer: type, extend_s: int | None
):
    async with a_field(tmp_path, work=False, **LIMITS) as field:
        context = field.system.context
        voice: Any = context.telephony.voice("twilio")

        async def look_up(_: object) -> object:
            if said == "unsure":
                message = "away"
                raise ProviderUnsure(message)
            if isinstance(said, CallStatus):
                return CallEvent(
                    provider="twilio", call_id="CA1", ref=None, status=said, event="asked"
                )
            return said

        voice.look_up = look_up
        assert (given_up_ms(context.settings), certain_ms(voice)) == (
            GIVEN_UP_S * 1000,
            CERTAIN_S * 1000,
        )
        now = (await field.store.read(StatsQuery())).now
        awaited = Awaited(
            id=derived_id("a call"),
            run=1,
            ref="x:1",
            kind="ring",
            lane="rings",
            tenant="",
            subject=None,
            args={"to": phone_of("ada")},
            permits={} if said == "no line" else {LINES: LINE},
            candidate="",
            handed_at=datetime.fromtimestamp(now / 1000, UTC) - timedelta(seconds=past_s),
            in_doubt=True,
        )
        found: Any = await Ring(context).ask(awaited)
        assert type(found) is answer
        if extend_s is not None:
            # The clock advances during the query.
            assert (extend_s - 5) * 1000 < found.extend_ms <= extend_s * 1000
            assert found.known_as == ("twilio:CA1" if said is CallStatus.IN_PROGRESS else "")
        elif said is CallStatus.COMPLETED:
            assert (found.final, found.reason) == ("succeeded", "completed")
        else:
            # The outcome is unknown: the offer's own timeout decides.
            assert (found.final, found.reason) == ("dead", offer_calls.UNSURE)


class StandsStill(Timing):
    """A worker that stalls once between the hand-over and the call."""

    def __init__(self) -> None:
        self.reads = 0

    def monotonic(self) -> float:
        self.reads += 1
        return 0.0 if self.reads == 1 else 100.0


async def test_worker_frozen_before_the_call_places_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(offer_calls, "REFUSED_AGAIN", "50ms")
    async with a_field(tmp_path, offer_timeout="1h") as field:
        field.system.context.parts.timing = StandsStill()
        await field.technician("ada", "accept")
        sent = await field.ask()
        await field.becomes(sent["id"], "assigned")
        (call,) = await field.settled("ring", 1)
        assert [one.outcome for one in call.runs] == ["failed", "succeeded"]
        assert "worker stalled before the call" in call.runs[0].error
        assert len(calls_of(field.carrier.network.ledger)) == 1


async def test_call_of_an_ended_offer_is_not_placed_again_while_another_is_asked(
    tmp_path: Path,
):
    async with a_field(tmp_path, offer_timeout="1h", carrier=SLOW) as field:
        await field.technician("ada", "silent", km=1)
        await field.technician("bob", "silent", km=2)
        sent = await field.ask()
        await field.asks(sent["id"], "ada")
        await field.carrier.until(lambda one: one.ledger.calls, "called")
        assert (await field.say(sent["id"], "decline", "ada")).status_code == 200
        await field.asks(sent["id"], "bob")
        await field.carrier.until(lambda one: len(one.ledger.calls) == 2, "bob is called")
        await field.settled("ring", 1)
        # Like a job that the provider refused at first, and that is retried only now.
        again = field.app.kind("ring").make(
            job_id=derived_id("again"),
            to=phone_of("ada"),
            text="an offer",
            offer=f"{sent['id']}:1",
            stands_ms=1_000,
            candidate="ada",
        )
        await field.store.enqueue([again])
        await field.settled("ring", 2)
        assert len(calls_of(field.carrier.network.ledger)) == 2


async def test_report_about_a_call_postpones_the_query_and_an_alert_has_the_longest_call(
    tmp_path: Path,
):
    async with a_field(tmp_path, offer_timeout="1h", carrier=SLOW) as field:
        await field.user("dora", "call:+15557770002")
        field.carrier.person("+15557770002", "talks")
        assert (await field.ask())["status"] == "pending"
        await field.technician("ada", "silent")
        sent = await field.ask()
        await field.asks(sent["id"], "ada")

        async def deadline_ms(kind: str) -> int:
            """Return the time from hand-over to deadline, once the provider has replied."""
            async with asyncio.timeout(LIMIT_S):
                while True:
                    for job in await field.jobs(kind):
                        if job.progress is not None and job.deadline_at is not None:
                            return job.deadline_at - (job.runs[-1].handed_at or 0)
                    await REAL.pause(0.01)

        longest_ms = GIVEN_UP_S * 1000 // 2
        assert await deadline_ms("alert_dispatcher") >= longest_ms
        assert 10_000 <= await deadline_ms("ring") < longest_ms
