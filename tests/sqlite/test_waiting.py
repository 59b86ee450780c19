"""A waiting worker is woken by its own process and by others, and misses no wake-up."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from headway.stores.ledger.wakes import MOST_KNOWN, Wakes
from headway.stores.sqlite import SqliteStore, notifier
from headway.stores.sqlite.notifier import Notifier, folder_of
from headway.stores.sqlite.tables import lanes
from headway.testing.clock import FakeClock
from tests.plain_jobs import LANE, claim, job
from tests.sqlite.rig import one_turn, options

LIMIT = 120


async def asleep(store: SqliteStore, seen: int, lane: str = LANE) -> asyncio.Task[None]:
    """Return a waiter that is known to be asleep."""
    task = asyncio.ensure_future(store.wait([lane], None, seen))
    while not store._wakes._waiters:
        await one_turn()
        assert not task.done()
    return task


async def with_listener(store: SqliteStore) -> int:
    """Bind the socket with a first wait, which returns so that its caller claims once more."""
    await asyncio.wait_for(store.wait([LANE], None, 0), LIMIT)
    return (await claim(store)).seen


async def test_waiter_is_woken_by_an_enqueue_of_its_own_process(store: SqliteStore) -> None:
    task = await asleep(store, await with_listener(store))
    await store.enqueue([job(1)])
    await asyncio.wait_for(task, LIMIT)


async def test_waiter_is_woken_by_another_store_of_the_file(store: SqliteStore, path: Path) -> None:
    seen = await with_listener(store)
    other = SqliteStore(options(path))
    task = await asleep(store, seen)
    await other.enqueue([job(1)])
    await asyncio.wait_for(task, LIMIT)
    await other.close()


async def test_commit_after_the_claim_is_not_missed(store: SqliteStore) -> None:
    seen = await with_listener(store)
    await store.enqueue([job(1)])
    await asyncio.wait_for(store.wait([LANE], None, seen), LIMIT)


async def test_waiter_of_another_lane_sleeps_on(store: SqliteStore) -> None:
    task = await asleep(store, await with_listener(store), lane="other")
    await store.enqueue([job(1)])
    await store.enqueue([job(2, lane="other")])
    await asyncio.wait_for(task, LIMIT)


async def test_later_job_shortens_the_sleep_to_its_due_time(path: Path) -> None:
    clock = FakeClock()
    wakes = Wakes(clock)
    task = asyncio.ensure_future(wakes.wait([LANE], None, wakes.count))
    while not wakes._waiters:
        await one_turn()
    wakes.wake([(LANE, clock() + 3_600_000)])
    (sleeper,) = wakes._waiters
    assert sleeper.until_at == clock() + 3_600_000
    wakes.wake([(LANE, clock() + 7_200_000), (LANE, clock() + 20)])
    assert sleeper.until_at == clock() + 20
    await asyncio.wait_for(task, LIMIT)


async def test_wake_for_a_later_time_before_the_sleep_still_shortens_it() -> None:
    clock = FakeClock()
    wakes = Wakes(clock)
    seen = wakes.count
    wakes.wake([(LANE, clock() + 30)])
    wakes.wake([(LANE, clock() + 3_600_000)])
    await asyncio.wait_for(wakes.wait([LANE], None, seen), LIMIT)


async def test_wake_for_a_later_time_before_the_sleep_does_not_end_it() -> None:
    clock = FakeClock()
    wakes = Wakes(clock)
    wakes.wake([(LANE, clock() + 30)])
    clock.advance(30)
    seen = wakes.count
    wakes.wake([(LANE, clock() + 3_600_000)])
    task = asyncio.ensure_future(wakes.wait([LANE], None, seen))
    await one_turn()
    (sleeper,) = wakes._waiters
    assert sleeper.until_at == clock() + 3_600_000
    task.cancel()


async def test_wakes_of_many_lanes_are_forgotten_and_none_is_missed() -> None:
    wakes = Wakes(FakeClock())
    seen = wakes.count
    wakes.wake([(LANE, None)])
    for number in range(2 * MOST_KNOWN):
        wakes.wake([(f"lane-{number}", None)])
        assert len(wakes._lane_wakes) <= MOST_KNOWN + 1
    await asyncio.wait_for(wakes.wait([LANE], None, seen), LIMIT)
    task = asyncio.ensure_future(wakes.wait([LANE], None, wakes.count))
    await one_turn()
    assert not task.done()
    task.cancel()


async def test_rows_of_many_lanes_are_forgotten(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "MOST_KNOWN", 3)
    for number in range(10):
        await store.enqueue([job(number, lane=f"lane-{number}")])
    known = store._writer._ledger
    assert known is not None
    assert 0 < len(known.session.memory.lanes) <= 3


async def test_wait_until_a_past_time_does_not_sleep(store: SqliteStore, clock: FakeClock) -> None:
    seen = await with_listener(store)
    await asyncio.wait_for(store.wait([LANE], clock(), seen), LIMIT)


async def test_missed_notification_is_found_by_the_slow_poll(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = await with_listener(store)
    other = SqliteStore(options(path))
    monkeypatch.setattr(other._notifier, "notify", lambda number, lanes: None)
    task = await asleep(store, seen)
    await other.enqueue([job(1)])
    assert not task.done()
    store._check()
    await asyncio.wait_for(task, LIMIT)
    await other.close()


async def test_gap_in_the_notification_numbers_wakes_everyone(
    store: SqliteStore, path: Path
) -> None:
    seen = await with_listener(store)
    task = await asleep(store, seen, lane="quiet")
    store._on_notification((store._last_wake + 2, [("loud", None)]))
    await asyncio.wait_for(task, LIMIT)


def test_notification_reaches_others_and_not_its_sender(path: Path) -> None:
    one, two = Notifier(path), Notifier(path)
    one.start()
    two.start()
    one.notify(7, [("a", None), (None, 5)])
    assert two.listen(LIMIT) == (7, [("a", None), (None, 5)])
    two.notify(8, [("b", None)])
    assert one.listen(LIMIT) == (8, [("b", None)])
    one.close()
    assert len(list(folder_of(path).iterdir())) == 1
    two.close()
    assert not folder_of(path).exists()


def test_folder_removed_by_the_last_process_is_created_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last, one, two = Notifier(path), Notifier(path), Notifier(path)
    last.start()
    ending, mkdir = [last], Path.mkdir

    def made(folder: Path, mode: int, *, exist_ok: bool) -> None:
        mkdir(folder, mode, exist_ok=exist_ok)
        # The other process exits before the socket is bound.
        while ending:
            ending.pop().close()

    with monkeypatch.context() as patched:
        patched.setattr(Path, "mkdir", made)
        one.start()
    assert one.listening
    two.notify(1, [("a", None)])
    assert one.listen(LIMIT) == (1, [("a", None)])
    one.close()
    two.close()


def test_process_that_arrives_within_the_same_timestamp_of_the_folder_is_notified(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three = (Notifier(path) for _ in range(3))
    # If that value has just been set, a change may leave it the same.
    monkeypatch.setattr(notifier, "file_age_ms", lambda _: 1)
    two.start()
    one.notify(1, [("a", None)])
    stamp = folder_of(path).stat().st_mtime_ns
    three.start()
    os.utime(folder_of(path), ns=(stamp, stamp))
    one.notify(2, [("b", None)])
    assert three.listen(LIMIT) == (2, [("b", None)])
    for each in (one, two, three):
        each.close()


def test_socket_of_a_dead_process_is_removed(path: Path) -> None:
    dead, alive = Notifier(path), Notifier(path)
    dead.start()
    assert dead._receiver is not None
    dead._receiver.close()
    alive.notify(1, [(None, None)])
    assert list(folder_of(path).iterdir()) == []
    alive.close()


def test_folder_removed_during_its_listing_stops_no_sender(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = Notifier(path), Notifier(path)
    two.start()

    def removed(_: object) -> list[str]:
        raise FileNotFoundError

    with monkeypatch.context() as patched:
        patched.setattr("os.listdir", removed)
        one.notify(1, [("a", None)])
    one.notify(2, [("b", None)])
    assert two.listen(LIMIT) == (2, [("b", None)])
    one.close()
    two.close()


def test_too_long_message_becomes_any_lane(path: Path) -> None:
    one, two = Notifier(path), Notifier(path)
    two.start()
    one.notify(3, [(f"{n}" * 100, None) for n in range(5_000)])
    assert two.listen(LIMIT) == (3, [(None, None)])
    one.close()
    two.close()


def test_unread_notification_never_blocks_its_sender(path: Path) -> None:
    one, two = Notifier(path), Notifier(path)
    two.start()
    rung = threading.Event()

    def notify() -> None:
        for number in range(5_000):
            one.notify(number, [("lane", None)])
        rung.set()

    threading.Thread(target=notify, daemon=True).start()
    assert rung.wait(LIMIT)
    one.close()
    two.close()


async def test_path_too_long_for_a_socket_has_its_sockets_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = tmp_path / "run"
    runtime.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    path = deep / "headway.db"
    # The runtime folder of a test is itself deep; what counts is that the name is short.
    assert folder_of(path).parent == runtime
    assert len(folder_of(path).name) < 60


async def test_store_without_a_socket_still_wakes_its_own_and_is_polled(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Notifier, "start", lambda self: None)
    store = SqliteStore(options(path))
    await asyncio.wait_for(store.wait([LANE], None, 0), LIMIT)
    await store.close()
