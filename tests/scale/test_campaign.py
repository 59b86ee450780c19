"""A small campaign of the bench: it finds no fault, and would find one."""

from __future__ import annotations

from bench.campaign.day import Day
from bench.campaign.plan import START, Campaign
from headway.stores import open_store
from headway.testing.clock import FakeClock


async def test_small_campaign_uses_all_that_the_gates_allow_without_a_fault() -> None:
    clock = FakeClock(START)
    store = open_store("memory://", clock=clock)
    seen = await Day(store, clock, Campaign(60), lambda _: None).play()
    await store.close()
    assert seen.faults == []
    assert seen.calls == 60
    assert seen.use > 0.99
    assert {"hours", "not due", "lane paused"} <= set(seen.asked)


async def test_campaign_finds_forbidden_calls_and_false_reasons() -> None:
    clock = FakeClock(START)
    store = open_store("memory://", clock=clock)
    day = Day(store, clock, Campaign(60), lambda _: None)
    # The bench believes that all of them are paused, but the store has not paused any.
    for n in range(50):
        day.allowed.pause(f"reseller-{n:02}", paused=True)
    seen = await day.play()
    await store.close()
    assert any("was dialled while that was paused" in one for one in seen.faults)
    assert any(one.startswith("why of ") and "tenant:" in one for one in seen.faults)
