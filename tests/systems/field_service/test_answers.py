"""Answers from outside: by key, message or API; in time, too late, twice, at the same instant."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headway.contract.claims import ClaimRequest
from headway.contract.outcomes import HandedOver, SettleRequest
from headway.contract.views import JobQuery
from headway.core.naming import MAX_NAME
from headway.core.state import State
from headway.runtime.timing import REAL
from headway.systems.field_service.answering import AnswerEffect, answer
from headway.systems.field_service.records import TEXTS_KEPT_MS, record_answered_offer
from tests.plain_jobs import claim, job
from tests.server.problems import problem
from tests.servers.postgres import fresh_database
from tests.systems.field_service.directories import opened
from tests.systems.field_service.field_rig import (
    LINE,
    FieldRig,
    a_field,
    phone_of,
    shorten_first_offer,
)


def texts_to(field: FieldRig, name: str) -> list[str]:
    ledger = field.carrier.network.ledger
    return [
        one.plan.text
        for one in ledger.texts.values()
        if one.plan.to == phone_of(name) and not one.inbound
    ]


async def write(field: FieldRig, name: str, words: str) -> str:
    """Send a message to the line; return the reply."""
    before = len(texts_to(field, name))
    field.carrier.network.write(phone_of(name), LINE, words)
    await field.carrier.until(lambda _: len(texts_to(field, name)) > before, "replied")
    return texts_to(field, name)[-1]


async def test_message_is_answered_with_one_or_two_and_gets_the_result(tmp_path: Path):
    async with a_field(tmp_path) as field:
        await field.technician("ada", "ignore", km=1, channel="text")
        await field.technician("bob", "ignore", km=2, channel="text")
        sent = await field.ask()
        await field.asks(sent["id"], "ada")
        await field.carrier.until(lambda _: texts_to(field, "ada"), "asked")
        assert "Reply 1 to accept" in texts_to(field, "ada")[0]
        assert await write(field, "ada", "what?") == "Reply 1 to accept, 2 to decline."
        assert "next technician will be asked" in await write(field, "ada", " No. ")
        await field.asks(sent["id"], "bob")
        assert "no open offer" in await write(field, "ada", "1")
        assert "Bo Li" in await write(field, "bob", "YES")
        assert "Bo Li" in await write(field, "bob", "1")
        told = await field.becomes(sent["id"], "assigned")
        assert told["technician"] == "bob"
        assert "not known" in await write(field, "strange", "1")


async def test_technician_who_answers_by_message_gets_the_request(tmp_path: Path):
    async with a_field(tmp_path) as field:
        await field.technician("ada", "decline", km=1, channel="text")
        await field.technician("bob", "accept", km=2, channel="text")
        sent = await field.ask()
        told = await field.becomes(sent["id"], "assigned")
        assert [one["said"] for one in told["asked"]] == ["declined", "accepted"]


SID = f"SM{'b' * 32}"


@pytest.mark.parametrize(("word", "ends"), [("1", "complete"), ("2", "redispatch")])
async def test_repeated_message_answers_no_later_offer(tmp_path: Path, word: str, ends: str):
    async with a_field(tmp_path, offer_timeout="1h", lines={}, text_from=LINE) as field:
        await field.technician("bob", "ignore", channel="text")
        first = await field.ask()
        await field.asks(first["id"], "bob")
        said = await field.text("bob", word, SID)
        await field.becomes(first["id"], "assigned" if word == "1" else "pending")
        assert (await field.move(first["id"], ends)).status_code == 200
        second = first if ends == "redispatch" else await field.ask()
        await field.asks(second["id"], "bob")
        again = await field.text("bob", word, SID)
        assert (again.status_code, again.text) == (200, said.text)
        assert (await field.get(second["id"]))["offer"]["technician"] == "bob"
        # Another message with the same words is a separate answer.
        await field.text("bob", word, f"SM{'c' * 32}")
        await field.becomes(second["id"], "assigned" if word == "1" else "pending")


async def test_message_before_its_offer_answers_nothing(tmp_path: Path):
    async with a_field(tmp_path, lines={}, text_from=LINE, work=False) as field:
        await field.technician("bob", "ignore", channel="text")
        sent = await field.ask()
        asked = ClaimRequest(worker="w" * 32, request=1, lanes=(("offers", 1),), free=1)
        (taken,) = (await field.store.claim(asked)).jobs
        assert (taken.id, taken.candidate) == (sent["id"], "bob")
        assert "no open offer" in (await field.text("bob", "1", SID)).text
        offered = HandedOver(taken.id, taken.run, key=f"{taken.id}:{taken.run}", timeout_ms=60_000)
        await field.store.settle(SettleRequest(worker="w" * 32, outcomes=(offered,)))
        told = await field.get(sent["id"])
        assert (told["status"], told["technician"]) == ("dispatching", None)


async def test_repeated_message_without_an_offer_answers_no_later_one(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h", lines={}, text_from=LINE) as field:
        await field.technician("bob", "ignore", channel="text")
        assert "no open offer" in (await field.text("bob", "1", SID)).text
        sent = await field.ask()
        await field.asks(sent["id"], "bob")
        assert "no open offer" in (await field.text("bob", "1", SID)).text
        assert (await field.get(sent["id"]))["offer"]["technician"] == "bob"


@pytest.mark.parametrize("server", ["sqlite", "postgresql"])
async def test_offer_of_a_message_survives_the_process_and_is_forgotten_after_90_days(
    tmp_path: Path, server: str, request: pytest.FixtureRequest
):
    async def answered(url: str, event: str, offer: str, at: int) -> str:
        async with opened(url) as directory, directory.change() as session:
            return await record_answered_offer(session, event, offer, at)

    async def story(url: str) -> None:
        assert await answered(url, "text", "a:1", 1_000) == "a:1"
        assert await answered(url, "text", "b:1", 999 + TEXTS_KEPT_MS) == "a:1"
        assert await answered(url, "other", "", 999 + TEXTS_KEPT_MS) == ""
        # Nothing else is stored that would remember it.
        assert await answered(url, "text", "b:1", 1_000 + TEXTS_KEPT_MS) == "b:1"
        assert await answered(url, "other", "b:1", 1_000 + TEXTS_KEPT_MS) == ""

    if server == "sqlite":
        await story(f"sqlite:///{tmp_path}/directory.db")
        return
    with fresh_database(request.getfixturevalue("fast_postgres_server").url) as url:
        await story(url)


async def test_one_of_two_simultaneous_acceptances_wins_and_the_other_gets_a_reply(
    tmp_path: Path,
):
    async with a_field(tmp_path, offer_timeout="1h", lines={}) as field:
        await field.technician("ada", km=1)
        await field.technician("bob", km=2)
        for _ in range(10):
            sent = await field.ask()
            await field.asks(sent["id"], "ada")
            replies = await asyncio.gather(
                field.say(sent["id"], "decline", "ada"),
                field.say(sent["id"], "accept", "ada", event="twice"),
                field.say(sent["id"], "accept", "ada"),
            )
            told = await field.until(
                sent["id"],
                lambda told: told["technician"] or (told["offer"] or {}).get("technician") == "bob",
            )
            codes = [one.status_code for one in replies]
            if told["technician"] == "ada":
                assert codes == [409, 200, 200]
            else:
                assert codes == [200, 409, 409]
            await field.withdraw(sent["id"])


async def test_exactly_one_of_two_simultaneously_accepting_candidates_gets_it(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="60ms", lines={}) as field:
        await field.technician("ada", km=1)
        await field.technician("bob", km=2)
        winners: list[str] = []
        for number in range(8):
            sent = await field.ask()
            await field.asks(sent["id"], "ada")
            # The two answers coincide with the end of the first offer.
            await REAL.pause(0.035 + number * 0.006)
            replies: list[Any] = []

            async def insist(name: str, request: str = sent["id"], into: Any = replies) -> None:
                for _ in range(6):
                    into.append((name, await field.say(request, "accept", name)))

            await asyncio.gather(insist("ada"), insist("bob"))
            told = await field.get(sent["id"])
            won = {name for name, reply in replies if reply.status_code == 200}
            assert len(won) <= 1
            assert {reply.status_code for _, reply in replies} <= {200, 409}
            if won:
                assert told["technician"] in won
                winners += won
                await field.move(sent["id"], "complete")
            else:
                await field.becomes(sent["id"], "pending")
        assert winners


async def test_acceptance_after_the_offer_is_refused_even_if_the_request_is_unassigned(
    tmp_path: Path,
):
    async with a_field(tmp_path, offer_timeout="100ms", lines={}) as field:
        await field.technician("ada", km=1)
        sent = await field.ask()
        await field.becomes(sent["id"], "pending")
        reply = await field.say(sent["id"], "accept", "ada")
        problem(reply, 409, "invalid_state")
        assert "the offer is over" in reply.text
        assert any("late: ada accepts" in one.what for one in (await field.job(sent["id"])).trail)


async def test_event_of_the_longest_allowed_length_is_applied_once(tmp_path: Path):
    event = "e" * MAX_NAME
    async with a_field(tmp_path, offer_timeout="1h", lines={}) as field:
        for name in ("ada", "bob", "cleo"):
            await field.technician(name, km=1)
        sent = await field.ask()
        await field.asks(sent["id"], "ada")
        refused = await field.say(sent["id"], "decline", "ada", event=f"{event}e")
        problem(refused, 422, "invalid_value")
        assert "512" in refused.text
        for _ in range(2):
            reply = await field.say(sent["id"], "decline", "ada", event=event)
            assert reply.status_code == 200, reply.text
        await field.asks(sent["id"], "bob")
        # Another event of this length is another answer.
        other = await field.say(sent["id"], "accept", "bob", event=f"{event[1:]}f")
        assert other.json()["technician"] == "bob"


async def test_only_the_asked_technician_can_answer(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h", lines={}) as field:
        await field.technician("ada", km=1)
        await field.technician("bob", km=2)
        sent = await field.ask()
        await field.asks(sent["id"], "ada")
        problem(await field.say(sent["id"], "accept", "bob"), 409, "invalid_state")
        problem(await field.say(sent["id"], "accept", "nobody"), 404, "unknown_record")
        problem(await field.say("x", "accept", "ada"), 404, "unknown_record")
        assert (await field.get(sent["id"]))["offer"]["technician"] == "ada"


async def test_repeated_answer_gets_the_same_reply(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h", lines={}) as field:
        await field.technician("ada", km=1)
        await field.technician("bob", km=2)
        sent = await field.ask()
        await field.asks(sent["id"], "ada")
        for _ in range(2):
            assert (await field.say(sent["id"], "decline", "ada")).status_code == 200
        await field.asks(sent["id"], "bob")
        for _ in range(2):
            assert (await field.say(sent["id"], "accept", "bob")).status_code == 200
        problem(await field.say(sent["id"], "decline", "bob"), 409, "invalid_state")
        assert (await field.get(sent["id"]))["technician"] == "bob"


async def test_repeated_decline_stays_a_decline_though_a_later_offer_was_accepted(
    tmp_path: Path,
):
    async with a_field(tmp_path, offer_timeout="1h", lines={}) as field:
        await field.technician("bob", "ignore")
        sent = await field.ask()
        await field.asks(sent["id"], "bob")
        assert (await field.say(sent["id"], "decline", "bob", event="e1")).status_code == 200
        await field.becomes(sent["id"], "pending")
        assert (await field.move(sent["id"], "redispatch")).status_code == 200
        await field.asks(sent["id"], "bob")
        assert (await field.say(sent["id"], "accept", "bob", event="e2")).status_code == 200
        again = await answer(
            field.store,
            field.system.context.tally,
            ref=f"{sent['id']}:1",
            technician="bob",
            accepts=False,
            event="api:e1",
            by="by API",
        )
        assert again.verdict is AnswerEffect.DECLINED
        assert (await field.get(sent["id"]))["technician"] == "bob"


async def test_technicians_whose_offers_expired_learn_that_it_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    shorten_first_offer(monkeypatch, 300)
    async with a_field(tmp_path, line_wait="5s") as field:
        await field.technician("ada", "silent", km=1)
        await field.technician("bob", "decline", km=2)
        await field.technician("cleo", "accept", km=3)
        sent = await field.ask()
        await field.becomes(sent["id"], "assigned")
        await field.carrier.until(lambda _: texts_to(field, "ada"), "told")
        assert texts_to(field, "ada") == ["The job at 52.52000, 13.40500 is taken."]
        await field.settled("offer_taken", 1)
        assert texts_to(field, "bob") == texts_to(field, "cleo") == []


async def test_ringing_phone_is_hung_up_when_its_offer_ends(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="300ms", line_wait="5s", ring="5m") as field:
        # A minute of the simulated world takes a second.
        field.carrier.network.pace.speed = 60
        await field.technician("ada", "ignore", km=1)
        sent = await field.ask()
        await field.becomes(sent["id"], "pending")
        (ring,) = await field.settled("ring", 1)
        assert ring.reason in {"canceled", "no-answer"}
        (call,) = field.carrier.network.ledger.calls.values()
        assert call.status.ended


async def test_wrong_key_is_asked_again_and_answers_nothing(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="400ms", line_wait="5s") as field:
        await field.technician("ada", "wrong", km=1)
        sent = await field.ask()
        told = await field.becomes(sent["id"], "pending")
        assert [one["said"] for one in told["asked"]] == ["timeout"]


async def test_unsigned_webhook_changes_nothing(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h") as field:
        await field.technician("ada", "silent")
        sent = await field.ask()
        await field.asks(sent["id"], "ada")
        ref = f"{sent['id']}:1"
        for path in ("status", "answer", "texts"):
            reply = await field.rig.http.post(
                f"/field-service/hooks/twilio/{path}?ref={ref}",
                data={"Digits": "1", "CallSid": "CA1", "CallStatus": "completed"},
                headers={"X-Twilio-Signature": "forged"},
            )
            problem(reply, 401, "unauthenticated")
            assert (await field.rig.http.post(f"/field-service/hooks/x/{path}")).status_code == 404
        assert (await field.get(sent["id"]))["offer"]["technician"] == "ada"


@pytest.mark.parametrize(
    "ref", ["zz", "", "a:b", "%00", "{id}", "{id}:x", "{id}:", f"{{id}}:{'9' * 5_000}"]
)
async def test_signed_webhook_about_no_offer_changes_nothing_and_is_answered(
    tmp_path: Path, ref: str
):
    async with a_field(tmp_path, offer_timeout="1h", lines={}) as field:
        await field.technician("ada")
        sent = await field.ask()
        await field.asks(sent["id"], "ada")
        query, call = f"?ref={ref.format(id=sent['id'])}", {"CallSid": f"CA{'b' * 32}"}
        reply = await field.hook(f"answer{query}", **call, Digits="1", CallStatus="in-progress")
        assert (reply.status_code, "This offer is not known." in reply.text) == (200, True)
        for status in ("in-progress", "busy", "completed"):
            reply = await field.hook(f"status{query}", **call, CallStatus=status)
            assert (reply.status_code, reply.content) == (204, b"")
        assert (await field.get(sent["id"]))["offer"]["technician"] == "ada"


@pytest.mark.parametrize("status", ["in-progress", "busy", "completed"])
async def test_status_of_a_call_that_names_the_run_of_an_offer_changes_nothing(
    tmp_path: Path, status: str
):
    async with a_field(tmp_path, offer_timeout="1h", lines={}) as field:
        await field.technician("ada")
        sent = await field.ask()
        told = await field.asks(sent["id"], "ada")
        call = {"CallSid": f"CA{'b' * 32}", "CallStatus": status}
        reply = await field.hook(f"status?ref={sent['id']}:1", **call)
        assert (reply.status_code, reply.content) == (204, b"")
        now = await field.get(sent["id"])
        assert now["status"] == "dispatching"
        assert now["offer"]["until"] == told["offer"]["until"]


async def test_key_about_a_run_without_an_offer_changes_nothing(tmp_path: Path):
    async with a_field(tmp_path, lines={}) as field:
        other, store = job(1), field.rig.service.store
        await store.enqueue([other])
        await claim(store)
        handed_over = HandedOver(other.id, 1, key="elsewhere")
        await store.settle(SettleRequest(worker="w", outcomes=(handed_over,)))
        call = {"CallSid": f"CA{'b' * 32}", "CallStatus": "in-progress"}
        reply = await field.hook(f"answer?ref={other.id}:1", **call, Digits="1")
        assert "This offer is not known." in reply.text
        view = await store.read(JobQuery(id=other.id))
        assert view is not None
        assert view.state is State.AWAITING


async def test_uncertain_call_is_never_placed_twice_and_the_timer_decides(tmp_path: Path):
    async with a_field(
        tmp_path, offer_timeout="500ms", line_wait="5s", carrier={"post_lost": 1.0, "silent": 1.0}
    ) as field:
        await field.technician("ada", "cut", km=1)
        sent = await field.ask()
        told = await field.becomes(sent["id"], "pending")
        assert [(one["said"], one["reason"]) for one in told["asked"]] == [
            ("timeout", "no answer in time")
        ]
        assert len(field.carrier.network.ledger.calls) == 1
        assert field.carrier.network.ledger.twice() == {}


async def test_duplicate_late_and_out_of_order_webhooks_change_nothing(tmp_path: Path):
    world = {"post_twice": 0.7, "post_disordered": 0.5, "post_late": 0.3}
    async with a_field(tmp_path, carrier=world) as field:
        await field.technician("ada", "decline", km=1)
        await field.technician("bob", "busy", km=2)
        await field.technician("cleo", "accept", km=3)
        sent = await field.ask()
        told = await field.becomes(sent["id"], "assigned")
        assert [one["said"] for one in told["asked"]] == ["declined", "declined", "accepted"]
        rings = await field.settled("ring", 3)
        assert {one.state for one in rings} == {State.SUCCEEDED}


async def test_unknown_call_is_hung_up_once_a_webhook_has_named_it(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h", ring="5m", patience="1s") as field:
        # A minute of the simulated world takes a second.
        field.carrier.network.pace.speed = 60
        await field.technician("ada", "cut", km=1, ring_s=280)
        sent = await field.ask()
        await field.ringing()
        assert (await field.say(sent["id"], "decline", "ada")).status_code == 200
        (ring,) = await field.settled("ring", 1)
        assert ring.reason == "canceled"
