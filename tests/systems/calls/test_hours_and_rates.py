"""Calling hours in the lead's own time zone, and limits on calls to one customer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import update

from headway.contract.operate import ActRequest, Edit, Verb
from headway.stores import open_store
from headway.systems.calls import catalogue_routes, requeueing
from headway.systems.calls.catalogue import RevisionRecord, TemplateRecord
from headway.systems.calls.context import CallsContext
from tests.systems.calls.calls_rig import PHONE, Calls, LiveClock, calling

HOUR_MS = 3_600_000


@pytest.fixture
def clock() -> LiveClock:
    return LiveClock()


@pytest.fixture
async def calls(tmp_path: Path, clock: LiveClock) -> AsyncIterator[Calls]:
    store = open_store("memory://", clock=clock)
    async with calling(tmp_path, store=store) as found:
        await found.number(channels=50)
        yield found
    await store.close()


async def test_lead_waits_for_the_hours_of_its_own_zone(calls: Calls, clock: LiveClock) -> None:
    # It is Thursday, 00:00 in London and 16:00 of the previous day in Los Angeles.
    await calls.template("day", hours={"spans": "09:00-18:00", "days": "mon-fri"})
    here = await calls.lead(template="day", tz="America/Los_Angeles")
    there = await calls.lead("+14155550111", template="day", tz="Europe/London")
    assert (await calls.finished(here))["outcome"] == "COMPLETED"
    await calls.until_why(there, "calls.hours:day:Europe/London", "09:00")
    now = await calls.call("POST", f"/leads/{there}/dispatch-now")
    within = now.json()["expected_dispatch_within_ms"]
    assert 8 * HOUR_MS < within <= 9 * HOUR_MS + 1_000
    await calls.jump(clock, 9 * HOUR_MS - 60_000)
    assert not calls.calls_to("+14155550111")
    await calls.jump(clock, 60_000)
    assert (await calls.finished(there))["outcome"] == "COMPLETED"


async def test_changed_hours_apply_to_waiting_leads(calls: Calls) -> None:
    await calls.template("day", hours={"spans": "09:00-10:00"})
    lead = await calls.lead(template="day", tz="UTC")
    await calls.until_why(lead, "calls.hours:day:UTC")
    await calls.template("day", hours={"spans": "00:00-23:59"})
    assert (await calls.finished(lead))["outcome"] == "COMPLETED"
    await calls.template("day", hours={"spans": "09:00-10:00"})
    lead = await calls.lead("+14155550111", template="day", tz="UTC")
    await calls.until_why(lead, "calls.hours:day:UTC")
    await calls.template("day")
    assert (await calls.finished(lead))["outcome"] == "COMPLETED"


async def test_new_hours_apply_to_waiting_leads(calls: Calls) -> None:
    await calls.change("+15550001001", status="DISABLED")
    lead = await calls.lead(template="default", tz="UTC")
    await calls.until_why(lead, "calls.numbers")
    await calls.template("default", hours={"spans": "09:00-10:00"})
    await calls.until_why(lead, "calls.hours:default:UTC")
    await calls.change("+15550001001", status="AVAILABLE")
    await calls.until_why(lead, "calls.hours:default:UTC")
    assert not calls.calls_to()


async def test_change_by_a_server_killed_before_it_requeued_applies_to_waiting_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requeueing, "SECOND_PASS_S", 0.01)
    monkeypatch.setattr(requeueing, "LOOK_S", 0.01)
    # The change is committed, and nothing after that is done.
    monkeypatch.setattr(catalogue_routes, "gate_layout", lambda _: ())
    passes: list[int] = []
    requeue = requeueing.requeue

    async def counted(context: CallsContext) -> int:
        passes.append(await requeue(context))
        return passes[-1]

    monkeypatch.setattr(requeueing, "requeue", counted)
    async with calling(tmp_path) as calls:

        async def is_done() -> bool:
            return len(passes) >= 4

        await calls.number()
        await calls.change("+15550001001", status="DISABLED")
        lead = await calls.lead(template="default", tz="UTC")
        await calls.until_why(lead, "calls.numbers")
        await calls.until(is_done, "the passes at the start of the server")
        # A check may be slow, and end with the old gates after the first two passes.
        monkeypatch.setattr(requeueing, "SECOND_PASS_S", 10)
        await calls.template("default", hours={"spans": "09:00-10:00"})
        await calls.until_why(lead, "calls.hours:default:UTC")


async def test_lead_returned_to_its_dial_by_an_operator_passes_todays_hours(
    calls: Calls,
) -> None:
    await calls.template("default", max_retry=1, retry_offset="1h")
    calls.carrier.person(PHONE, "busy", "talks")
    lead = await calls.lead(tz="UTC")
    await calls.until_status(lead, "BACKLOG", attempt_count=1)
    await calls.close("calls.numbers")
    assert (await calls.call("POST", f"/leads/{lead}/dispatch-now")).status_code == 200
    await calls.until_why(lead, "calls.numbers", "closed by")
    assert (await calls.call("DELETE", f"/leads/{lead}")).json()["outcome"] == "ABORT"
    await calls.open("calls.numbers")
    await calls.template("default", hours={"spans": "09:00-10:00"})
    job = await calls.job(lead)
    again = ActRequest(
        request="again",
        ids=(lead,),
        verb=Verb.RETRY,
        edit=Edit(stage="dial", gates=tuple(one for one in job.gates if "hours" not in one.name)),
        author="ann",
    )
    await calls.store.act(again)
    await calls.until_why(lead, "calls.hours:default:UTC")
    assert len(calls.calls_to()) == 1
    await calls.audit()


async def test_lead_retried_by_an_operator_has_all_attempts_again(
    calls: Calls,
) -> None:
    await calls.template("default", max_retry=1, retry_offset="1h")
    calls.carrier.person(PHONE, "busy", "busy", "busy")
    lead = await calls.lead()
    await calls.until_status(lead, "BACKLOG", attempt_count=1)
    # Its life ends while it waits, not in a run.
    assert (await calls.call("DELETE", f"/leads/{lead}")).json()["outcome"] == "ABORT"
    await calls.template("default", max_retry=1, retry_offset="0s")
    await calls.store.act(ActRequest(request="again", ids=(lead,), verb=Verb.RETRY, author="ann"))
    assert (await calls.finished(lead))["outcome"] == "BUSY"
    assert len(calls.calls_to()) == 3
    await calls.audit()


async def test_provider_that_says_when_it_has_room_is_asked_again_then(
    calls: Calls, clock: LiveClock
) -> None:
    calls.carrier.person(PHONE, "too_many", "talks")
    lead = await calls.lead()
    await calls.until_why(lead, "calls.numbers")
    # As the provider's reply says; without that value a number rests longer.
    await calls.jump(clock, 1_000)
    assert (await calls.finished(lead))["outcome"] == "COMPLETED"
    await calls.audit()


async def test_one_customer_is_called_seven_times_an_hour_and_not_once_more(
    calls: Calls, clock: LiveClock
) -> None:
    leads = [await calls.lead() for _ in range(7)]
    for lead in leads:
        await calls.finished(lead)
    more = [await calls.lead() for _ in range(2)]
    for lead in more:
        await calls.until_why(lead, f"calls.customer:{PHONE}")
    other = await calls.lead("+14155550111")
    await calls.finished(other)
    assert len(calls.calls_to()) == 7
    await calls.jump(clock, HOUR_MS - 60_000)
    assert len(calls.calls_to()) == 7
    await calls.jump(clock, 60_000)
    for lead in more:
        assert (await calls.finished(lead))["outcome"] == "COMPLETED"
    await calls.audit()


async def test_templates_own_rate_applies_beside_the_default(
    calls: Calls, clock: LiveClock
) -> None:
    await calls.template("rare", customer_limit=1, customer_per="1d")
    first = await calls.lead(template="rare")
    await calls.finished(first)
    second = await calls.lead(template="rare")
    await calls.until_why(second, f"calls.customer:rare:{PHONE}")
    await calls.finished(await calls.lead())
    await calls.template("rare", customer_limit=2, customer_per="1d")
    assert (await calls.finished(second))["outcome"] == "COMPLETED"
    third = await calls.lead(template="rare")
    await calls.until_why(third, f"calls.customer:rare:{PHONE}")
    await calls.jump(clock, 24 * HOUR_MS)
    assert (await calls.finished(third))["outcome"] == "COMPLETED"


async def test_limit_of_no_calls_is_refused_when_written(calls: Calls) -> None:
    reply = await calls.call("PUT", "/templates/never", {"customer_limit": 0})
    assert reply.status_code == 422, reply.text
    assert "customer_limit" in reply.text
    assert "it should be at least 1, and is 0" in reply.text
    assert (await calls.call("GET", "/templates/never")).status_code == 404


async def test_limit_of_no_calls_stored_earlier_is_still_read(
    calls: Calls,
) -> None:
    await calls.template("never")
    async with calls.system.context.directory.change() as session:
        record = await session.get_one(TemplateRecord, "never")
        record.body = {**record.body, "customer_limit": 0}
        await session.execute(update(RevisionRecord).values(revision=RevisionRecord.revision + 1))
    page = await calls.system.context.catalogue.newest()
    assert page.template("never").customer_limit == 0
    lead = await calls.lead(template="never")
    await calls.until_why(lead, f"calls.customer:never:{PHONE}")
