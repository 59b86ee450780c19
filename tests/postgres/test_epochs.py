"""A store that is another one, or an older state of itself, hands out nothing."""

from __future__ import annotations

import pytest

from headway.contract.claims import BeatRequest
from headway.contract.outcomes import Verdict
from headway.contract.views import StatsQuery, TrailQuery
from headway.core.errors import StoreChanged
from headway.stores.postgres.store import PostgresStore
from headway.testing.clock import FakeClock
from tests.postgres.places import Place, assert_clean, claim, count, job, jobs, succeed


async def backed_up(place: Place, clock: FakeClock) -> PostgresStore:
    """A store that has gone on since its backup, with two jobs then."""
    store = place.open(clock)
    await store.enqueue(jobs(0, 2))
    await store.lead("chores", "here", 1)
    place.back_up()
    clock.advance(10_000)
    await store.enqueue([job(10)])
    await store.lead("chores", "here", 1)
    return store


async def test_restored_backup_stops_claims_until_a_new_epoch(
    place: Place, clock: FakeClock
) -> None:
    store = await backed_up(place, clock)
    assert len((await claim(store, n=2)).jobs) == 2
    place.restore()
    with pytest.raises(StoreChanged) as error:
        await claim(store, request=2)
    assert "--new-epoch" in error.value.hint
    assert await store.new_epoch("ann", "the disk died") == 2
    assert len((await claim(store, request=3)).jobs) == 2
    (line,) = (await store.read(TrailQuery())).rows
    assert (line.author, line.reason, line.verb) == ("ann", "the disk died", "new epoch")


async def test_new_epoch_by_another_process_is_taken_for_the_operators_word(
    place: Place, clock: FakeClock
) -> None:
    store = await backed_up(place, clock)
    place.restore()
    with pytest.raises(StoreChanged):
        await claim(store)
    await place.open(clock).new_epoch("ann", "restored")
    assert len((await claim(store)).jobs) == 2


async def test_new_epoch_given_before_a_process_looked_counts_if_it_is_later_than_all_it_saw(
    place: Place, clock: FakeClock
) -> None:
    store = await backed_up(place, clock)
    place.restore()
    clock.advance(1)
    await place.open(clock).new_epoch("ann", "restored")
    assert not await store.is_changed()
    assert len((await claim(store)).jobs) == 2


async def test_epoch_of_a_backup_that_began_before_what_was_seen_stops_claims(
    place: Place, clock: FakeClock
) -> None:
    await place.open(clock).new_epoch("ann", "to be safe")
    store = await backed_up(place, clock)
    place.restore()
    assert await store.is_changed()
    with pytest.raises(StoreChanged):
        await claim(store)


async def test_what_one_process_found_out_stops_all_though_time_has_gone_on(
    place: Place, clock: FakeClock
) -> None:
    store = await backed_up(place, clock)
    place.restore()
    with pytest.raises(StoreChanged):
        await claim(store)
    clock.advance(50_000)
    stranger = place.open(clock)
    await stranger.enqueue([job(11)])
    with pytest.raises(StoreChanged):
        await claim(store)
    with pytest.raises(StoreChanged):
        await claim(stranger, worker="w2")
    await store.new_epoch("ann", "restored")
    assert len((await claim(stranger, worker="w2", n=9)).jobs) == 3


async def test_another_store_in_its_place_stops_claims(place: Place, clock: FakeClock) -> None:
    other = Place(place.database)
    stranger = other.open(clock)
    clock.advance(100_000)
    await stranger.enqueue([job(5)])
    other.back_up()
    await stranger.close()
    store = place.open(clock)
    await store.lead("chores", "here", 1)
    place.restore(other.namespace)
    with pytest.raises(StoreChanged):
        await claim(store)
    other.forget()


async def test_numbers_of_a_store_that_was_replaced_are_forgotten(
    place: Place, clock: FakeClock
) -> None:
    store = await backed_up(place, clock)
    await store.enqueue([job(20, tenant="acme", lane="new", subject="gone")])
    place.restore()
    await store.new_epoch("ann", "restored")
    await store.enqueue([job(21, tenant="beta", lane="newer")])
    stats = await store.read(StatsQuery())
    assert sum(stats.counts.values()) == 3
    assert len((await claim(store)).jobs) == 2
    await assert_clean(store)


async def test_new_epoch_fences_every_run_of_before(place: Place, clock: FakeClock) -> None:
    store = place.open(clock)
    await store.enqueue(jobs(0, 3))
    runs = [(one.id, one.run) for one in (await claim(store)).jobs]
    assert await store.new_epoch("ann", "to be safe") == 2
    assert (await store.read(StatsQuery())).epoch == 2
    beaten = await store.beat(BeatRequest(worker="w", running=tuple(runs), request=1))
    assert sorted(beaten.lost) == sorted(runs)
    assert await succeed(store, runs) == [Verdict.LOST] * 3
    assert await count(store, "succeeded") == 0
    await assert_clean(store)


async def test_clock_that_was_far_ahead_is_set_back_only_on_an_operators_word(
    place: Place, clock: FakeClock
) -> None:
    store, other = place.open(clock), place.open(clock)
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


async def test_time_never_goes_back_across_restarts(place: Place, clock: FakeClock) -> None:
    store = place.open(clock)
    clock.advance(50_000)
    ahead = clock()
    await store.enqueue([job(1)])
    clock.advance(-40_000)
    again = place.open(clock)
    assert (await again.read(StatsQuery())).now == ahead
    assert (await claim(again)).now == ahead
