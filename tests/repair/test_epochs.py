"""A store replaced by another one, or by an older state of itself, hands out no jobs."""

from __future__ import annotations

from typing import Any

import pytest

from headway.contract.claims import BeatRequest
from headway.contract.outcomes import Verdict
from headway.contract.views import StatsQuery, TrailQuery
from headway.core.errors import StoreChanged
from headway.testing.clock import FakeClock
from tests.plain_jobs import assert_clean, claim, count, job, jobs, succeed
from tests.repair.sites import Durable, Site

AnySite = Site[Any]


async def backed_up(site: AnySite, clock: FakeClock) -> Durable:
    """Return a store that was used after its backup, which contains two jobs."""
    store = site.open()
    await store.enqueue(jobs(0, 2))
    await store.lead("chores", "here", 1)
    store = await site.back_up(store)
    clock.advance(10_000)
    await store.enqueue([job(10)])
    await store.lead("chores", "here", 1)
    return store


async def test_restored_backup_stops_claims_until_a_new_epoch(
    site: AnySite, clock: FakeClock
) -> None:
    store = await backed_up(site, clock)
    assert len((await claim(store, n=2)).jobs) == 2
    site.restore()
    site.check(store)
    with pytest.raises(StoreChanged) as error:
        await claim(store, request=2)
    assert "--new-epoch" in error.value.hint
    assert await store.new_epoch("ann", "the disk died") == 2
    assert len((await claim(store, request=3)).jobs) == 2
    line, mark = (await store.read(TrailQuery())).rows
    assert (line.author, line.reason, line.verb) == ("ann", "the disk died", "new epoch")
    assert (mark.verb, mark.target) == ("store changed", "store")


async def test_new_epoch_by_another_process_counts_as_the_operators_decision(
    site: AnySite, clock: FakeClock
) -> None:
    store = await backed_up(site, clock)
    site.restore()
    site.check(store)
    with pytest.raises(StoreChanged):
        await claim(store)
    doctor = site.open()
    await doctor.new_epoch("ann", "restored")
    await doctor.close()
    assert len((await claim(store)).jobs) == 2


async def test_new_epoch_before_a_process_looked_counts_if_later_than_all_it_saw(
    site: AnySite, clock: FakeClock
) -> None:
    store = await backed_up(site, clock)
    site.restore()
    clock.advance(1)
    doctor = site.open()
    await doctor.new_epoch("ann", "restored")
    await doctor.close()
    site.check(store)
    assert await store.suspicion() is None
    assert len((await claim(store)).jobs) == 2


async def test_backup_epoch_that_started_before_what_was_seen_stops_claims(
    site: AnySite, clock: FakeClock
) -> None:
    first = site.open()
    await first.new_epoch("ann", "to be safe")
    await first.close()
    store = await backed_up(site, clock)
    site.restore()
    site.check(store)
    assert await store.suspicion() is not None
    with pytest.raises(StoreChanged):
        await claim(store)


async def test_finding_of_one_process_stops_all_though_time_passed(
    site: AnySite, clock: FakeClock
) -> None:
    store = await backed_up(site, clock)
    site.restore()
    site.check(store)
    with pytest.raises(StoreChanged):
        await claim(store)
    clock.advance(50_000)
    stranger = site.open()
    await stranger.enqueue([job(11)])
    with pytest.raises(StoreChanged):
        await claim(store)
    with pytest.raises(StoreChanged):
        await claim(stranger, worker="w2")
    await store.new_epoch("ann", "restored")
    assert len((await claim(stranger, worker="w2", n=9)).jobs) == 3


async def test_process_that_only_sends_detects_that_its_jobs_were_lost(
    site: AnySite, clock: FakeClock
) -> None:
    store = site.open()
    await store.enqueue([job(0)])
    store = await site.back_up(store)
    for number in (1, 2):
        clock.advance(10_000)
        await store.enqueue([job(number)])
    site.restore()
    site.check(store)
    # After this the store's time is later than all that was seen.
    clock.advance(10_000)
    for number in (3, 4):
        assert (await store.enqueue([job(number)]))[0].created
    stranger = site.open()
    assert await count(stranger, "waiting") == 3
    with pytest.raises(StoreChanged):
        await claim(stranger)


async def test_another_store_in_its_place_stops_claims(site: AnySite, clock: FakeClock) -> None:
    other = site.another()
    stranger = other.open()
    clock.advance(100_000)
    await stranger.enqueue([job(5)])
    await other.back_up(stranger)
    store = site.open()
    await store.enqueue([job(1)])
    await store.lead("chores", "here", 1)
    site.restore(other)
    site.check(store)
    with pytest.raises(StoreChanged):
        await claim(store)
    await other.close()


async def test_reads_see_the_replacement(site: AnySite, clock: FakeClock) -> None:
    store = await backed_up(site, clock)
    assert sum((await store.read(StatsQuery())).counts.values()) == 3
    site.restore()
    assert sum((await store.read(StatsQuery())).counts.values()) == 2


async def test_numbers_of_a_replaced_store_are_forgotten(site: AnySite, clock: FakeClock) -> None:
    store = await backed_up(site, clock)
    await store.enqueue([job(20, tenant="acme", lane="new", subject="gone")])
    site.restore()
    site.check(store)
    await store.new_epoch("ann", "restored")
    await store.enqueue([job(21, tenant="beta", lane="newer")])
    stats = await store.read(StatsQuery())
    assert sum(stats.counts.values()) == 3
    assert len((await claim(store)).jobs) == 2
    await assert_clean(store)


async def test_new_epoch_fences_every_earlier_run(site: AnySite) -> None:
    store = site.open()
    await store.enqueue(jobs(0, 3))
    runs = [(one.id, one.run) for one in (await claim(store)).jobs]
    assert await store.new_epoch("ann", "to be safe") == 2
    assert (await store.read(StatsQuery())).epoch == 2
    beaten = await store.beat(BeatRequest(worker="w", running=tuple(runs), request=1))
    assert sorted(beaten.lost) == sorted(runs)
    assert await succeed(store, runs) == [Verdict.LOST] * 3
    assert await count(store, "succeeded") == 0
    await assert_clean(store)


async def test_clock_far_ahead_is_set_back_only_by_an_operator(
    site: AnySite, clock: FakeClock
) -> None:
    store, other = site.open(), site.open()
    right = clock()
    clock.advance(3_600_000)
    await store.enqueue([job(1)])
    clock.jump_to(right)
    await other.enqueue([job(2)])
    stats = await store.read(StatsQuery())
    assert (stats.now, stats.clock_ahead_ms) == (right + 3_600_000, 3_600_000)
    assert await store.reset_clock("ann", "the clock was an hour ahead") == 3_600_000
    for one in (store, other):
        await one.enqueue([job(3 if one is store else 4)])
        stats = await one.read(StatsQuery())
        assert (stats.now, stats.clock_ahead_ms, stats.epoch) == (right, 0, 2)
    assert len((await claim(other)).jobs) == 4


async def test_time_never_goes_back_across_restarts(site: AnySite, clock: FakeClock) -> None:
    store = site.open()
    clock.advance(50_000)
    ahead = clock()
    await store.enqueue([job(1)])
    await store.close()
    clock.advance(-40_000)
    again = site.open()
    assert (await again.read(StatsQuery())).now == ahead
    assert (await claim(again)).now == ahead


async def test_worker_that_left_before_the_clock_was_set_back_keeps_its_later_claims(
    site: AnySite, clock: FakeClock
) -> None:
    store = site.open()
    right = clock()
    clock.advance(3_600_000)
    await store.enqueue([job(1)])
    (first,) = (await claim(store)).jobs
    assert await succeed(store, [(first.id, first.run)]) == [Verdict.DONE]
    await store.beat(BeatRequest(worker="w", running=(), leaving=True))
    clock.jump_to(right)
    await store.reset_clock("ann", "the clock was an hour ahead")
    # The worker's lease ended at a time that is now in the future.
    await store.enqueue(jobs(2, 3))
    runs = [
        (one.id, one.run)
        for request in (2, 3, 4)
        for one in (await claim(store, request=request, n=1)).jobs
    ]
    assert len(runs) == 3
    assert (await store.sweep(10)).lost == 0
    assert await succeed(store, runs) == [Verdict.DONE] * 3
    await assert_clean(store)
