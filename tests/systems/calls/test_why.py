"""Why a lead is not called: the sentence for each reason, and that it is called once that ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headway.stores import open_store
from tests.systems.calls.calls_rig import NUMBER, OTHER, PHONE, Calls, LiveClock, calling

HOUR_MS = 3_600_000


@pytest.fixture
def clock() -> LiveClock:
    """Return a clock that starts at midnight UTC; a jump takes it to nine o'clock."""
    return LiveClock()


@pytest.fixture
async def calls(tmp_path: Path, clock: LiveClock) -> AsyncIterator[Calls]:
    """Run one number with one line; calls stay connected once they are answered."""
    store = open_store("memory://", clock=clock)
    async with calling(
        tmp_path, store=store, settings={"customer_limit": 1}, talk="1000000s", post_lost=1.0
    ) as found:
        await found.number(NUMBER)
        yield found
    await store.close()


async def called(calls: Calls, phone: str, **body: str) -> str:
    """Return a lead that is being called."""
    lead = await calls.lead(phone, status=201, **body)
    await calls.until_status(lead, "PROCESSING")
    return lead


async def test_why_says_when_a_lead_is_due(calls: Calls) -> None:
    lead = await calls.lead(next_attempt_at="2026-01-01T03:00:00Z")
    why = await calls.until_why(lead, "scheduled")
    assert why.startswith("scheduled: due at 2026-01-01T03:00:00Z (in ")
    assert "closed" not in why


async def test_why_says_when_hours_open_and_nothing_else(calls: Calls, clock: LiveClock) -> None:
    await calls.template("day", hours={"spans": "09:00-18:00"})
    lead = await calls.lead(template="day", tz="Europe/London")
    why = await calls.until_why(lead, "outside")
    assert why.startswith(
        "blocked: outside calls.hours:day:Europe/London until 2026-01-01T09:00:00Z (in "
    )
    assert why.endswith("); 1st in its flow")
    await calls.jump(clock, 9 * HOUR_MS)
    # A worker sleeps until nine in real time: a clock that jumps does not wake it.
    await calls.close("lane:calls")
    await calls.open("lane:calls")
    await calls.until_status(lead, "PROCESSING")


async def test_why_says_who_holds_the_lines_of_a_full_pool(calls: Calls) -> None:
    holder = await called(calls, PHONE)
    lead = await calls.lead("+14155550111")
    why = await calls.until_why(lead, "is full")
    assert why == (
        f"blocked: pool calls.numbers is full (1 of 1), held by {holder}; 1st in its flow"
    )
    behind = await calls.lead("+14155550112")
    assert (await calls.until_why(behind, "is full")).endswith("; 2nd in its flow")
    await calls.change(NUMBER, maximum_channels=2)
    await calls.until_status(lead, "PROCESSING")


async def test_why_says_that_a_number_is_disabled_and_that_a_pool_has_none(calls: Calls) -> None:
    await calls.number(OTHER, reseller="acme", status="DISABLED")
    await calls.template("vip", numbers="vip")
    own = await calls.lead()
    vip = await calls.lead("+14155550111", template="vip", reseller="globex")
    why = await calls.until_why(own, "calls.numbers:acme")
    assert why == (
        "blocked: pool calls.numbers:acme has no member with a capacity above 0; 1st in its flow"
    )
    why = await calls.until_why(vip, "calls.pool:vip")
    assert why == "blocked: pool calls.pool:vip has no members; 1st in its flow"
    await calls.change(OTHER, status="AVAILABLE")
    await calls.until_status(own, "PROCESSING")
    await calls.number("+15550001003", pool="vip")
    await calls.until_status(vip, "PROCESSING")


async def test_why_says_when_a_customer_may_be_called_again(calls: Calls, clock: LiveClock) -> None:
    await calls.change(NUMBER, maximum_channels=5)
    await called(calls, PHONE)
    lead = await calls.lead()
    why = await calls.until_why(lead, "calls.customer")
    assert why.startswith(f"blocked: rate calls.customer:{PHONE} is full (1 of 1), opens at ")
    await calls.jump(clock, HOUR_MS)
    await calls.until_status(lead, "PROCESSING")


async def test_why_says_who_paused_a_reseller_or_the_lane_and_the_reason(calls: Calls) -> None:
    for gate in ("tenant:acme", "lane:calls", "all"):
        await calls.close(gate, "a complaint")
    lead = await calls.lead()
    why = await calls.until_why(lead, "tenant:acme")
    closed = [f"{one} is closed by admin (a complaint)" for one in ("all", "lane:calls")]
    closed.append("tenant:acme is closed by admin (a complaint)")
    assert why == f"blocked: {'; '.join(closed)}; 1st in its flow"
    for gate in ("tenant:acme", "lane:calls", "all"):
        await calls.open(gate)
    await calls.until_status(lead, "PROCESSING")


async def test_why_says_that_a_reseller_has_reached_its_limit_of_calls(calls: Calls) -> None:
    await calls.change(NUMBER, maximum_channels=5)
    reply = await calls.call("PATCH", "/v1/gates/tenant:acme", {"capacity": 1})
    assert reply.status_code == 200, reply.text
    holder = await called(calls, PHONE)
    lead = await calls.lead("+14155550111")
    why = await calls.until_why(lead, "tenant:acme")
    assert why == f"blocked: tenant:acme is full (1 of 1), held by {holder}; 1st in its flow"
    await called(calls, "+14155550112", reseller="globex")
    assert (await calls.call("DELETE", "/v1/gates/tenant:acme")).status_code == 200
    await calls.until_status(lead, "PROCESSING")


async def test_why_says_that_no_worker_is_running(calls: Calls) -> None:
    await calls.rest()
    lead = await calls.lead()
    why = await calls.until_why(lead, "no live worker serves lane calls")
    assert "closed" not in why
    await calls.work()
    await calls.until_status(lead, "PROCESSING")
