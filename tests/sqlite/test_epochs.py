"""A store that is another one, or an older state of itself, hands out nothing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from headway.contract.claims import BeatRequest
from headway.contract.outcomes import Verdict
from headway.contract.views import StatsQuery, TrailQuery
from headway.core.errors import StoreChanged, StoreError
from headway.stores.sqlite import SqliteStore
from headway.testing.clock import FakeClock
from tests.sqlite.rig import assert_clean, claim, count, job, jobs, options, succeed


def copy(path: Path, to: Path) -> None:
    """A backup of a closed store."""
    shutil.copy(path, to)


def put_back(backup: Path, path: Path) -> None:
    """An operator restores a backup: another file under the old name."""
    for one in (f"{path.name}-wal", f"{path.name}-shm"):
        path.with_name(one).unlink(missing_ok=True)
    shutil.copy(backup, path.with_name("restored"))
    os.replace(path.with_name("restored"), path)


async def make_backup(path: Path, clock: FakeClock) -> Path:
    store = SqliteStore(options(path), clock)
    await store.enqueue(jobs(0, 2))
    await store.close()
    backup = path.with_name("backup.db")
    copy(path, backup)
    return backup


async def test_restored_backup_stops_claims_until_a_new_epoch(path: Path, clock: FakeClock) -> None:
    backup = await make_backup(path, clock)
    store = SqliteStore(options(path), clock)
    clock.advance(1000)
    await store.enqueue([job(10)])
    assert len((await claim(store, n=2)).jobs) == 2
    put_back(backup, path)
    store._writer.look_at_file()
    with pytest.raises(StoreChanged) as error:
        await claim(store, request=2)
    assert "--new-epoch" in error.value.hint
    assert await store.new_epoch("ann", "the disk died") == 2
    assert len((await claim(store, request=3)).jobs) == 2
    (line,) = (await store.read(TrailQuery())).rows
    assert (line.author, line.reason, line.verb) == ("ann", "the disk died", "new epoch")
    await store.close()


async def test_new_epoch_by_another_process_is_taken_for_the_operators_word(
    path: Path, clock: FakeClock
) -> None:
    backup = await make_backup(path, clock)
    store = SqliteStore(options(path), clock)
    clock.advance(1000)
    await store.enqueue([job(10)])
    put_back(backup, path)
    store._writer.look_at_file()
    with pytest.raises(StoreChanged):
        await claim(store)
    doctor = SqliteStore(options(path), clock)
    await doctor.new_epoch("ann", "restored")
    await doctor.close()
    assert len((await claim(store)).jobs) == 2
    await store.close()


async def test_new_epoch_given_before_a_process_looked_counts_if_it_is_later_than_all_it_saw(
    path: Path, clock: FakeClock
) -> None:
    backup = await make_backup(path, clock)
    store = SqliteStore(options(path), clock)
    clock.advance(1000)
    await store.enqueue([job(10)])
    put_back(backup, path)
    clock.advance(1)
    doctor = SqliteStore(options(path), clock)
    await doctor.new_epoch("ann", "restored")
    await doctor.close()
    store._writer.look_at_file()
    assert not await store.is_changed()
    assert len((await claim(store)).jobs) == 2
    await store.close()


async def test_epoch_of_a_backup_that_began_before_what_was_seen_stops_claims(
    path: Path, clock: FakeClock
) -> None:
    first = SqliteStore(options(path), clock)
    await first.new_epoch("ann", "to be safe")
    await first.close()
    backup = await make_backup(path, clock)
    store = SqliteStore(options(path), clock)
    clock.advance(1000)
    await store.enqueue([job(10)])
    put_back(backup, path)
    store._writer.look_at_file()
    assert await store.is_changed()
    with pytest.raises(StoreChanged):
        await claim(store)
    await store.close()


async def test_what_one_process_found_out_stops_all_though_time_has_gone_on(
    path: Path, clock: FakeClock
) -> None:
    backup = await make_backup(path, clock)
    store = SqliteStore(options(path), clock)
    clock.advance(1000)
    await store.enqueue([job(10)])
    put_back(backup, path)
    store._writer.look_at_file()
    with pytest.raises(StoreChanged):
        await claim(store)
    clock.advance(5000)
    stranger = SqliteStore(options(path), clock)
    await stranger.enqueue([job(11)])
    with pytest.raises(StoreChanged):
        await claim(store)
    with pytest.raises(StoreChanged):
        await claim(stranger, worker="w2")
    await store.new_epoch("ann", "restored")
    assert len((await claim(stranger, worker="w2", n=9)).jobs) == 3
    await stranger.close()
    await store.close()


async def test_another_store_in_its_place_stops_claims(path: Path, clock: FakeClock) -> None:
    other = path.with_name("other.db")
    stranger = SqliteStore(options(other), clock)
    clock.advance(100_000)
    await stranger.enqueue([job(5)])
    await stranger.close()
    store = SqliteStore(options(path), clock)
    await store.enqueue([job(1)])
    put_back(other, path)
    store._writer.look_at_file()
    with pytest.raises(StoreChanged):
        await claim(store)
    await store.close()


async def test_reads_see_the_file_that_was_put_in_its_place(path: Path, clock: FakeClock) -> None:
    backup = await make_backup(path, clock)
    store = SqliteStore(options(path), clock)
    clock.advance(1000)
    await store.enqueue([job(10)])
    assert sum((await store.read(StatsQuery())).counts.values()) == 3
    put_back(backup, path)
    assert sum((await store.read(StatsQuery())).counts.values()) == 2
    await store.close()


async def test_file_that_was_removed_is_said_to_be_gone(path: Path, clock: FakeClock) -> None:
    store = SqliteStore(options(path), clock)
    await store.enqueue([job(1)])
    os.unlink(path)
    store._writer.look_at_file()
    with pytest.raises(StoreError):
        await store.enqueue([job(2)])
    await store.close()


async def test_new_epoch_fences_every_run_of_before(store: SqliteStore) -> None:
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
    path: Path, clock: FakeClock
) -> None:
    store = SqliteStore(options(path), clock)
    other = SqliteStore(options(path), clock)
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
    await store.close()
    await other.close()


async def test_time_never_goes_back_across_restarts(path: Path, clock: FakeClock) -> None:
    store = SqliteStore(options(path), clock)
    clock.advance(50_000)
    ahead = clock()
    await store.enqueue([job(1)])
    await store.close()
    clock.advance(-40_000)
    again = SqliteStore(options(path), clock)
    assert (await again.read(StatsQuery())).now == ahead
    assert (await claim(again)).now == ahead
    await again.close()
