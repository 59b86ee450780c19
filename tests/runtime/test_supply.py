"""How a worker keeps its handlers supplied: the small parts by themselves."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headway.contract.claims import Claimed
from headway.core.job import DEFAULT_POLICY
from headway.runtime.timing import Timing
from headway.runtime.worker.floor import Floor
from headway.runtime.worker.held import Held
from headway.runtime.worker.lease import Lease
from headway.runtime.worker.prefetch import Prefetch
from headway.runtime.worker.settler import Settler
from headway.runtime.worker.store_time import StoreTime


def claimed(number: int, *, gated: bool = False) -> Claimed:
    return Claimed(
        id=f"job {number}",
        run=number,
        attempt=1,
        kind="noop",
        stage="",
        lane="main",
        tenant="",
        subject=None,
        args=b"{}",
        priority=512,
        due_at=0,
        policy=DEFAULT_POLICY,
        gated=gated,
        members={},
        candidate="",
    )


class NoStore:
    """Nothing here may reach a store."""


async def floor_of(size: int, jobs: Sequence[Claimed]) -> Floor:
    timing, held = Timing(), Held()
    floor = Floor(size, Settler(NoStore(), "w", held, timing), held, timing)
    floor.take(jobs, timing.monotonic())
    return floor


async def test_reserved_handlers_take_no_job_without_gates() -> None:
    floor = await floor_of(4, [claimed(1), claimed(2)])
    floor.busy, floor.reserved = 2, 2
    assert floor.next() is None
    floor.reserved = 1
    assert floor.next() == claimed(1)


async def test_jobs_with_gates_go_first_and_count_against_the_free_handlers() -> None:
    floor = await floor_of(4, [claimed(1), claimed(2, gated=True)])
    floor.busy = 1
    assert floor.free == 2
    assert floor.next() == claimed(2, gated=True)
    assert floor.next() == claimed(1)
    assert floor.next() is None


async def test_withdrawn_jobs_are_not_started() -> None:
    floor = await floor_of(4, [claimed(1), claimed(2, gated=True), claimed(3)])
    gone = floor.withdraw(frozenset({("job 1", 1), ("job 2", 2), ("job 9", 9)}))
    assert [one.id for one in gone] == ["job 2", "job 1"]
    assert floor.next() == claimed(3)
    assert floor.next() is None


async def test_low_mark_asks_for_more() -> None:
    floor = await floor_of(4, [claimed(n) for n in range(4)])
    floor.low_mark = 2
    floor.next()
    assert not floor.asked.is_set()
    floor.next()
    assert floor.asked.is_set()


def test_prefetch_follows_the_speed_of_the_handlers() -> None:
    prefetch = Prefetch(2_000)
    assert prefetch.target == 0
    prefetch.mark(10.0, 0)
    prefetch.measure(10.001, 10)
    assert prefetch.target == 1_000
    prefetch.mark(11.0, 10)
    prefetch.measure(12.0, 20)
    assert prefetch.target == 500
    prefetch.mark(13.0, 20)
    prefetch.measure(13.000_001, 1_000_000)
    assert prefetch.target == 2_000
    prefetch.measure(13.0, 20)
    assert prefetch.target == 2_000


def test_lease_ends_are_counted_from_the_sending_and_never_shrink() -> None:
    lease = Lease(30_000)
    assert not lease.lapsing(1e9)
    lease.kept(100.0, 30_000)
    assert (lease.ends, lease.stop_by, lease.interval) == (130.0, 125.0, 10.0)
    lease.kept(105.0, 1_000)
    assert lease.ends == 130.0
    assert [lease.lapsing(124.9), lease.lapsing(125.0)] == [False, True]


@pytest.mark.parametrize(("sent", "bound"), [(99.0, 99.0), (99.9, 99.9)])
def test_tightest_exchange_bounds_when_a_claim_was(sent: float, bound: float) -> None:
    time = StoreTime()
    time.heard(sent, 1_000_000)
    assert time.earliest(1_000_000, 100.0) == pytest.approx(bound)
    # A slow exchange says less than a quick one, and does not make a claim look older.
    time.heard(sent, 1_000_500)
    assert time.earliest(1_000_500, 101.0) == pytest.approx(bound + 0.5)
    assert time.earliest(1_009_000, 101.0) == 101.0


def test_beat_carries_the_newest_progress_once_and_again_if_it_failed() -> None:
    held = Held()
    held.note_progress(("a", 1), b"1")
    held.note_progress(("a", 1), b"2")
    taken = held.take_progress()
    assert taken == (("a", 1, b"2"),)
    assert held.take_progress() == ()
    held.put_back(taken)
    held.note_progress(("b", 1), b"3")
    assert held.take_progress() == (("a", 1, b"2"), ("b", 1, b"3"))
    held.note_progress(("a", 1), b"newer")
    held.put_back(taken)
    assert held.take_progress() == (("a", 1, b"newer"),)
