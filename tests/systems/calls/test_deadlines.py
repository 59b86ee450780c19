"""Calls whose end is never reported: the provider is queried, and no live line is freed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headway.carrier.ledger import CallPlan
from headway.contract.views import JobView
from headway.core.errors import ProviderUnsure
from headway.core.state import State
from headway.stores import open_store
from headway.systems.calls import call_events, reconciling
from headway.systems.calls.call_events import put_back
from headway.systems.calls.context import CallsContext
from headway.systems.calls.overview import CountedEvent
from headway.systems.telephony.voice import CallOrder, Dialled
from tests.systems.calls.calls_rig import LIMIT_S, NUMBER, PHONE, Calls, LiveClock, calling

DEADLINE_MS = 1_800_000
AGAIN_MS = 300_000


@pytest.fixture
def clock() -> LiveClock:
    return LiveClock()


@pytest.fixture
async def calls(tmp_path: Path, clock: LiveClock) -> AsyncIterator[Calls]:
    """Run calls without any webhooks."""
    store = open_store("memory://", clock=clock)
    async with calling(tmp_path, store=store, post_lost=1.0) as found:
        await found.number()
        await found.template(max_retry=0)
        yield found
    await store.close()


@pytest.fixture
def pending_again(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the runs after which a lead's row in a source table is made pending again."""
    runs: list[int] = []

    async def noted(context: CallsContext, job: JobView, run: int) -> None:
        runs.append(run)
        await put_back(context, job, run)

    for module in (reconciling, call_events):
        monkeypatch.setattr(module, "put_back", noted)
    return runs


async def dialled(calls: Calls) -> str:
    lead = await calls.lead()

    async def known() -> Any:
        attempts = (await calls.get_lead(lead))["attempts"]
        return attempts and attempts[-1]["call_id"]

    await calls.until(known, "a call")
    return lead


async def over(calls: Calls) -> None:
    """Wait until all calls have ended; no webhook reports it."""
    await calls.carrier.until(
        lambda world: all(one.ended_at for one in world.ledger.calls.values()), "ended"
    )


async def deadline(calls: Calls, lead: str) -> int:
    at = (await calls.job(lead)).deadline_at
    assert at is not None
    return at


async def asked_again(calls: Calls, lead: str, before: int) -> None:
    """Wait until the provider was queried and the deadline moved according to its answer."""

    async def moved() -> bool:
        left = await deadline(calls, lead) - await calls.rig.service.now()
        return await deadline(calls, lead) != before and left <= AGAIN_MS

    await calls.until(moved, "a later deadline")


async def test_call_whose_end_was_not_reported_ends_with_its_own_outcome(
    calls: Calls, clock: LiveClock
) -> None:
    lead = await dialled(calls)
    await over(calls)
    assert (await calls.get_lead(lead))["status"] == "PROCESSING"
    waits = await calls.lead("+14155550111")
    await calls.until_why(waits, "1 of 1")
    await calls.jump(clock, DEADLINE_MS)
    assert (await calls.finished(lead))["outcome"] == "COMPLETED"
    await calls.until_status(waits, "PROCESSING")
    totals = await calls.system.context.tally.totals()
    assert totals[CountedEvent.WEBHOOK_LOST, NUMBER] == 1
    await calls.audit()


async def test_live_line_is_not_released_however_often_its_deadline_passes(
    calls: Calls, clock: LiveClock
) -> None:
    calls.carrier.person(PHONE, "talks", talk_s=10_000_000)
    lead = await dialled(calls)
    await calls.carrier.until(
        lambda world: all(one.status == "in-progress" for one in world.ledger.calls.values())
    )
    waits = await calls.lead("+14155550111")
    for ahead in (DEADLINE_MS, AGAIN_MS, AGAIN_MS):
        before = await deadline(calls, lead)
        await calls.jump(clock, ahead)
        await asked_again(calls, lead, before)
        assert (await calls.get_lead(lead))["status"] == "PROCESSING"
        await calls.until_why(waits, "1 of 1")
    (call,) = calls.calls_to()
    await calls.carrier.network.hang_up(call.sid)
    await calls.jump(clock, AGAIN_MS)
    assert (await calls.finished(lead))["outcome"] == "COMPLETED"


async def test_cancelled_call_that_was_not_hung_up_keeps_its_line_until_it_is(
    calls: Calls, clock: LiveClock
) -> None:
    calls.carrier.person(PHONE, "talks", talk_s=10_000_000)
    lead = await dialled(calls)
    waits = await calls.lead("+14155550111")
    calls.carrier.network.change({"away": True})
    reply = await calls.call("DELETE", f"/leads/{lead}?hangup=true")
    assert reply.status_code == 502, reply.text
    before = await deadline(calls, lead)
    await calls.jump(clock, DEADLINE_MS)
    await asked_again(calls, lead, before)
    await calls.until_why(waits, "1 of 1")
    calls.carrier.network.change({"away": False})
    await calls.jump(clock, AGAIN_MS)
    (call,) = calls.calls_to()
    await over(calls)
    await calls.jump(clock, AGAIN_MS)
    told = await calls.finished(lead)
    assert (told["outcome"], call.status) == ("ABORT", "completed")
    await calls.until_status(waits, "PROCESSING")
    await calls.audit()


async def test_call_unknown_to_the_provider_is_lost_at_its_deadline_and_not_before(
    calls: Calls, clock: LiveClock
) -> None:
    lead = await dialled(calls)
    calls.carrier.network.ledger.calls.clear()
    await calls.jump(clock, DEADLINE_MS - 60_000)
    assert (await calls.get_lead(lead))["status"] == "PROCESSING"
    await calls.jump(clock, 60_000)
    told = await calls.finished(lead)
    assert told["outcome"] == "WEBHOOK_LOST"
    assert told["attempts"][0]["outcome"] == "WEBHOOK_LOST"
    await calls.audit()


async def test_lost_call_is_repeated_if_the_template_says_so(
    calls: Calls, clock: LiveClock, pending_again: list[int]
) -> None:
    await calls.template(retry_on=["WEBHOOK_LOST"], max_retry=1, retry_offset="0s")
    lead = await dialled(calls)
    calls.carrier.network.ledger.calls.clear()
    await calls.jump(clock, DEADLINE_MS)
    await calls.until_status(lead, "PROCESSING", attempt_count=2)
    told = await calls.get_lead(lead)
    assert told["attempts"][0]["outcome"] == "WEBHOOK_LOST"
    assert pending_again == [told["attempts"][0]["run"]]


async def test_line_is_kept_while_the_provider_does_not_answer(
    calls: Calls, clock: LiveClock
) -> None:
    lead = await dialled(calls)
    await over(calls)
    calls.carrier.network.change({"away": True})
    before = await deadline(calls, lead)
    await calls.jump(clock, DEADLINE_MS)
    await asked_again(calls, lead, before)
    assert (await calls.get_lead(lead))["status"] == "PROCESSING"
    calls.carrier.network.change({"away": False})
    left = await deadline(calls, lead) - await calls.rig.service.now()
    assert AGAIN_MS - 60_000 < left <= AGAIN_MS
    await calls.jump(clock, AGAIN_MS)
    assert (await calls.finished(lead))["outcome"] == "COMPLETED"


async def test_late_webhook_and_a_deadline_end_a_lead_once(calls: Calls, clock: LiveClock) -> None:
    lead = await dialled(calls)
    await over(calls)
    attempt = (await calls.get_lead(lead))["attempts"][0]
    await calls.jump(clock, DEADLINE_MS)
    told = await calls.finished(lead)
    reply = await calls.webhook(f"{lead}:{attempt['run']}", attempt["call_id"], "busy", n=2)
    assert reply.status_code == 204
    assert await calls.get_lead(lead) == told
    await calls.audit()


async def test_end_reported_while_the_provider_is_queried_is_counted_once(
    calls: Calls, clock: LiveClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lead = await dialled(calls)
    await over(calls)
    attempt = (await calls.get_lead(lead))["attempts"][0]
    look_up, asked = reconciling._look_up, asyncio.Event()

    async def meanwhile(*query: Any) -> Any:
        found = await look_up(*query)
        await calls.webhook(f"{lead}:{attempt['run']}", attempt["call_id"], "completed", n=2)
        asked.set()
        return found

    monkeypatch.setattr(reconciling, "_look_up", meanwhile)
    await calls.jump(clock, DEADLINE_MS)
    async with asyncio.timeout(LIMIT_S):
        await asked.wait()
    assert (await calls.finished(lead))["outcome"] == "COMPLETED"
    await calls.rest()
    totals = await calls.system.context.tally.totals()
    assert {event: n for (event, _), n in totals.items()} == {CountedEvent.OUTCOME: 1}


async def through(calls: Calls, lead: str) -> None:
    """Wait until the lead's handler has returned and the lead awaits an outcome no one knows."""

    async def is_through() -> bool:
        job = await calls.job(lead)
        return job.worker is None and job.state is State.AWAITING

    await calls.until(is_through, "through")


async def test_call_is_looked_up_where_it_was_placed_though_its_number_moved_to_another_provider(
    tmp_path: Path, clock: LiveClock
) -> None:
    store = open_store("memory://", clock=clock)
    second = {"simulated": {"answer": 1.0}}
    async with calling(tmp_path, store=store, telephony=second, post_lost=1.0) as calls:
        await calls.number()
        calls.carrier.person(PHONE, "cut", talk_s=1_000_000)
        lead = await calls.lead()
        await through(calls, lead)
        await calls.change(NUMBER, provider="simulated")
        before = await deadline(calls, lead)
        await calls.jump(clock, DEADLINE_MS)
        await asked_again(calls, lead, before)
        assert (await calls.get_lead(lead))["status"] == "PROCESSING"
        await calls.audit()
    await store.close()


async def test_another_leads_call_to_the_same_phone_is_not_mistaken_for_it(
    tmp_path: Path, clock: LiveClock
) -> None:
    store = open_store("memory://", clock=clock)
    async with calling(tmp_path, store=store, post_lost=1.0) as calls:
        await calls.number(channels=2)
        calls.carrier.person(PHONE, "cut", "talks")
        await calls.template(max_retry=0)
        lost = await calls.lead()
        await through(calls, lost)
        calls.carrier.network.ledger.calls.clear()
        other = await dialled(calls)
        await over(calls)
        assert len(calls.calls_to()) == 1
        await calls.jump(clock, DEADLINE_MS)
        assert (await calls.finished(other))["outcome"] == "COMPLETED"
        # Its own call was never placed, as far as the provider knows, and is placed now.
        await calls.carrier.until(lambda world: len(world.ledger.calls) == 2, "called")
        assert (await calls.get_lead(lost))["attempt_count"] == 1
        await calls.audit()
    await store.close()


async def test_earlier_call_of_a_lead_is_not_mistaken_for_its_next(
    calls: Calls, clock: LiveClock
) -> None:
    await calls.template(max_retry=1, retry_offset="0s")
    calls.carrier.person(PHONE, "busy", "talks")
    account, orders = calls.system.context.parts.telephony.voice("twilio"), list[CallOrder]()
    dial = account.dial

    async def lose_the_second(order: CallOrder) -> Dialled:
        orders.append(order)
        if len(orders) == 2:
            message = "the connection broke, and nothing was placed"
            raise ProviderUnsure(message)
        return await dial(order)

    account.dial = lose_the_second  # type: ignore[method-assign]
    lead = await dialled(calls)
    await over(calls)
    (first,) = calls.calls_to()
    await calls.webhook(orders[0].ref, first.sid, "busy", n=2)
    await calls.carrier.until(lambda _: len(orders) == 2, "asked for a second call")
    await calls.jump(clock, DEADLINE_MS)
    await calls.carrier.until(lambda world: len(world.ledger.calls) == 2, "called again")
    told = await calls.get_lead(lead)
    assert [one["outcome"] for one in told["attempts"]] == ["BUSY", None]


@asynccontextmanager
async def killed_before_its_call(
    folder: Path,
    clock: LiveClock,
    template: Mapping[str, Any] | None = None,
    telephony: dict[str, Any] | None = None,
    **settings: object,
) -> AsyncIterator[tuple[Calls, str]]:
    """Yield a lead that was handed over and whose worker died before contacting the provider."""
    store = open_store("memory://", clock=clock)
    async with calling(
        folder, store=store, work=False, settings=settings, telephony=telephony, post_lost=1.0
    ) as calls:
        await calls.number()
        await calls.template(max_retry=0, **(template or {}))
        handed = asyncio.Event()

        async def never(order: CallOrder) -> Dialled:
            del order
            handed.set()
            await asyncio.Event().wait()
            raise AssertionError

        account = calls.system.context.parts.telephony.voice("twilio")
        dial = account.dial
        account.dial = never  # type: ignore[method-assign]  (as if the process were killed there)
        lead = await calls.lead()
        worker = await calls.work()
        await asyncio.wait_for(handed.wait(), LIMIT_S)
        worker.stop(now=True)
        await calls.rest()
        account.dial = dial  # type: ignore[method-assign]
        await calls.work()
        yield calls, lead
    await store.close()


async def test_call_never_placed_is_no_attempt_and_is_made_at_the_deadline(
    tmp_path: Path, clock: LiveClock, pending_again: list[int]
) -> None:
    async with killed_before_its_call(tmp_path, clock) as (calls, lead):
        await calls.jump(clock, DEADLINE_MS - 60_000)
        assert (await calls.get_lead(lead))["status"] == "PROCESSING"
        assert not calls.calls_to()
        await calls.jump(clock, 60_000)
        await calls.carrier.until(lambda world: world.ledger.calls, "called")
        assert len(pending_again) == 1
        await over(calls)
        await calls.jump(clock, DEADLINE_MS)
        told = await calls.finished(lead)
        assert (told["outcome"], told["attempt_count"]) == ("COMPLETED", 1)
        assert len(calls.calls_to()) == 1
        totals = await calls.system.context.tally.totals()
        assert (CountedEvent.OUTCOME, "WEBHOOK_LOST") not in totals
        await calls.audit()


async def test_empty_call_listing_is_trusted_only_once_it_has_caught_up(
    tmp_path: Path, clock: LiveClock
) -> None:
    lag_ms = DEADLINE_MS
    async with killed_before_its_call(tmp_path, clock, listing_lag="30m") as (calls, lead):
        handed_at = (await calls.job(lead)).runs[-1].handed_at
        assert handed_at is not None
        certain_at = handed_at + DEADLINE_MS // 2 + lag_ms
        await calls.jump(clock, DEADLINE_MS)

        async def put_off() -> bool:
            return 0 <= await deadline(calls, lead) - certain_at < 60_000

        await calls.until(put_off, "a later deadline")
        assert (await calls.get_lead(lead))["status"] == "PROCESSING"
        # A call that is listed late is recognised as the lead's own, and is not repeated.
        world = calls.carrier.network
        outcome, nth = world.next_outcome(PHONE)
        world.place(CallPlan(ref="", to=PHONE, from_=NUMBER), outcome, nth)
        await over(calls)
        await calls.jump(clock, DEADLINE_MS // 2)
        told = await calls.finished(lead)
        assert (told["outcome"], told["attempt_count"]) == ("COMPLETED", 1)
        assert len(calls.calls_to()) == 1


async def test_lead_whose_calls_are_never_placed_is_not_tried_forever(
    tmp_path: Path, clock: LiveClock
) -> None:
    async with killed_before_its_call(tmp_path, clock, most_refused=1) as (calls, lead):
        calls.carrier.person(PHONE, "broken")
        await calls.jump(clock, DEADLINE_MS)

        async def handed_over_again() -> bool:
            job = await calls.job(lead)
            return job.runs[-1].handed_at is not None and len(job.runs) > 2 and job.worker is None

        await calls.until(handed_over_again, "handed over again")
        await calls.jump(clock, DEADLINE_MS)
        assert (await calls.finished(lead))["outcome"] == "WEBHOOK_LOST"


async def test_no_call_counts_as_unplaced_if_its_provider_cannot_be_asked(
    tmp_path: Path, clock: LiveClock
) -> None:
    async with killed_before_its_call(tmp_path, clock) as (calls, lead):
        await calls.number("+15550001009", provider="twilio")
        reply = await calls.call("DELETE", f"/numbers/{NUMBER}")
        assert reply.is_success
        await calls.jump(clock, DEADLINE_MS)
        assert (await calls.finished(lead))["outcome"] == "WEBHOOK_LOST"
        assert not calls.calls_to()


async def test_no_call_counts_as_unplaced_while_a_possible_provider_is_gone(
    tmp_path: Path, clock: LiveClock
) -> None:
    second = {"simulated": {"answer": 1.0}}
    template = {"providers": ["simulated"]}
    async with killed_before_its_call(tmp_path, clock, template, second) as (calls, lead):
        # As after a restart without the provider's settings: a call there could not be tracked.
        del calls.system.context.parts.telephony.voices["simulated"]
        await calls.jump(clock, DEADLINE_MS)
        assert (await calls.finished(lead))["outcome"] == "WEBHOOK_LOST"
        assert not calls.calls_to()
