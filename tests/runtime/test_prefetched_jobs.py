"""How a worker keeps its handlers supplied: unit tests of the small parts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import headway as hw
from headway.contract.claims import Claimed
from headway.lab.virtual_time import VirtualLoop, VirtualTiming, run_virtually
from headway.runtime.timing import Timing, pause
from headway.runtime.worker.claimer import CHECKS_KEPT, PrefetchSize, Surplus
from headway.runtime.worker.handler_slot import ReadyQueue
from headway.runtime.worker.lease import Held, Lease, StoreTime
from headway.runtime.worker.settler import Settler
from headway.stores import open_store
from tests.runtime.claimed import claimed


class NoStore:
    """No test here may reach a store."""


async def queue_of(size: int, jobs: Sequence[Claimed]) -> ReadyQueue:
    timing, held = Timing(), Held()
    queue = ReadyQueue(size, Settler(NoStore(), "w", held, timing), held, Lease(30_000), timing)
    queue.take(jobs, timing.monotonic())
    return queue


async def test_reserved_handlers_take_no_job_without_gates() -> None:
    queue = await queue_of(4, [claimed(1), claimed(2)])
    queue.busy, queue.reserved = 2, 2
    assert queue.next() is None
    queue.reserved = 1
    assert queue.next() == claimed(1)


async def test_gated_jobs_go_first_and_count_against_the_free_handlers() -> None:
    queue = await queue_of(4, [claimed(1), claimed(2, gated=True)])
    queue.busy = 1
    assert queue.free == 2
    assert queue.next() == claimed(2, gated=True)
    assert queue.next() == claimed(1)
    assert queue.next() is None


async def test_gated_jobs_whose_claim_was_answered_late_are_handed_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue = await queue_of(4, [])
    now = queue.timing.monotonic()
    queue.take([claimed(1, gated=True), claimed(2, gated=True)], now - 1.5)
    queue.take([claimed(3, gated=True), claimed(4, gated=True)], now + 600)
    assert queue.next() == claimed(3, gated=True)
    assert queue.next() == claimed(4, gated=True)
    assert queue.next() is None
    assert (queue.free, queue.settler.pending) == (4, 2)
    (logged,) = caplog.messages
    assert logged.startswith("jobs handed back count=2: start_within passed")


async def test_withdrawn_jobs_are_not_started() -> None:
    queue = await queue_of(4, [claimed(1), claimed(2, gated=True), claimed(3)])
    gone = queue.withdraw(frozenset({("job 1", 1), ("job 2", 2), ("job 9", 9)}))
    assert [one.id for one in gone] == ["job 2", "job 1"]
    assert queue.next() == claimed(3)
    assert queue.next() is None


async def test_no_job_starts_when_the_lease_may_have_ended() -> None:
    queue = await queue_of(4, [claimed(1), claimed(2, gated=True)])
    queue.lease.extend(queue.timing.monotonic() - 30, 30_000)
    assert queue.next() is None
    queue.lease.extend(queue.timing.monotonic(), 30_000)
    assert queue.next() == claimed(2, gated=True)
    assert queue.next() == claimed(1)


async def test_wait_that_was_cancelled_takes_no_job_from_another_handler() -> None:
    queue = await queue_of(2, [])
    waits = [asyncio.ensure_future(queue.wait_for_job()) for _ in range(3)]
    await pause(0)
    waits[2].cancel()
    await asyncio.gather(waits[2], return_exceptions=True)
    queue.take([claimed(1), claimed(2)], 0.0)
    for _ in range(3):
        await pause(0)
    assert [one.done() for one in waits] == [True, True, True]


async def test_low_mark_requests_more() -> None:
    queue = await queue_of(4, [claimed(n) for n in range(4)])
    queue.low_mark = 2
    queue.next()
    assert not queue.asked.is_set()
    queue.next()
    assert queue.asked.is_set()


def test_prefetch_follows_the_speed_of_the_handlers() -> None:
    prefetch = PrefetchSize(5_000)
    assert prefetch.target == 0
    prefetch.mark(10.0, 0)
    prefetch.measure(10.001, 10)
    assert prefetch.target == 2_500
    prefetch.mark(11.0, 10)
    prefetch.measure(12.0, 20)
    assert prefetch.target == 1_251
    prefetch.mark(13.0, 20)
    prefetch.measure(13.000_001, 1_000_000)
    assert prefetch.target == 5_000
    prefetch.measure(13.0, 20)
    assert prefetch.target == 5_000


def test_handlers_that_end_together_are_not_taken_for_quick_ones() -> None:
    prefetch = PrefetchSize(2_000)
    prefetch.mark(10.0, 0, idle=True)
    for n in range(1, 40):
        # Fifty handlers of 200 ms finish within two milliseconds, seen in part by several claims.
        burst = 10.0 + n * 0.2
        prefetch.measure(burst, 50 * n - 49)
        prefetch.mark(burst + 0.001, 50 * n - 30)
        prefetch.measure(burst + 0.002, 50 * n)
        assert 31 <= prefetch.target <= 75
        prefetch.mark(burst + 0.002, 50 * n)


@pytest.mark.parametrize(("took", "target"), [(0.001, 250), (0.2, 400), (9.0, 500)])
def test_slow_claims_prefetch_more_but_at_most_half_a_second_of_work(
    took: float, target: int
) -> None:
    prefetch = PrefetchSize(2_000)
    prefetch.mark(10.0, 0, took=took, idle=True)
    prefetch.measure(11.0, 1_000)
    assert prefetch.target == target


def test_speed_is_measured_from_the_end_of_an_idle_time() -> None:
    prefetch = PrefetchSize(5_000)
    prefetch.mark(10.0, 0, idle=True)
    prefetch.mark(500.0, 50, idle=True)
    prefetch.measure(500.01, 150)
    assert prefetch.target == 2_500


def test_slowed_handlers_are_noticed_at_once() -> None:
    prefetch = PrefetchSize(2_000)
    prefetch.mark(10.0, 0, idle=True)
    prefetch.measure(10.5, 20_000)
    assert prefetch.target == 2_000
    for n in range(1, 12):
        prefetch.mark(10.5 + n * 0.2 - 0.2, 20_000 + 50 * (n - 1))
        prefetch.measure(10.5 + n * 0.2, 20_000 + 50 * n)
    assert prefetch.target == 62


def test_measuring_before_the_first_claim_sets_nothing() -> None:
    prefetch = PrefetchSize(2_000)
    prefetch.measure(10.0, 5)
    assert prefetch.target == 0


def test_unstarted_jobs_are_kept_half_a_second_while_there_is_a_backlog() -> None:
    surplus = Surplus(2_000, 0)
    kept = [surplus.keep(2_000 - n, n, dry=False) for n in range(1, CHECKS_KEPT)]
    assert kept == [2_000 - n for n in range(1, CHECKS_KEPT)]
    # Ten started in that time, so ten are about to start.
    assert surplus.keep(1_990, 10, dry=False) == 10
    # The remaining jobs are held again.
    assert surplus.keep(9, 11, dry=False) == 9


def test_unstarted_jobs_are_given_back_at_once_when_the_lanes_are_empty() -> None:
    surplus = Surplus(25, 100)
    assert surplus.keep(13, 112, dry=True) == 12
    assert surplus.keep(12, 112, dry=True) == 0


def test_quick_handlers_keep_all_that_they_start_soon() -> None:
    surplus = Surplus(2_000, 0)
    assert surplus.keep(750, 1_250, dry=True) == 750
    assert surplus.keep(0, 2_000, dry=True) == 0
    surplus = Surplus(2_000, 0)
    for n in range(1, 40):
        assert surplus.keep(2_000, 1_250 * n, dry=False) == 2_000


async def test_queue_hands_back_the_jobs_that_would_start_last() -> None:
    queue = await queue_of(1, [claimed(n) for n in range(5)])
    assert queue.filled.is_set()
    queue.next()
    assert queue.started == 1
    queue.keep_ready(2, "not started in time")
    assert [one.id for one in queue.plain] == ["job 1", "job 2"]
    assert queue.settler.pending == 2
    assert queue.started == 1
    queue.withdraw(frozenset({("job 2", 2)}))
    assert queue.started == 1
    queue.next()
    assert queue.started == 2


def test_lease_ends_are_counted_from_the_request_and_never_shrink() -> None:
    lease = Lease(30_000)
    assert not lease.lapsing(1e9)
    lease.extend(100.0, 30_000)
    assert (lease.ends, lease.stop_by, lease.interval) == (130.0, 125.0, 10.0)
    lease.extend(105.0, 1_000)
    assert lease.ends == 130.0
    assert [lease.lapsing(124.9), lease.lapsing(125.0)] == [False, True]


@pytest.mark.parametrize(("sent", "bound"), [(99.0, 99.0), (99.9, 99.9)])
def test_tightest_exchange_bounds_the_time_of_a_claim(sent: float, bound: float) -> None:
    time = StoreTime()
    time.observe(sent, 1_000_000)
    assert time.earliest(1_000_000, 100.0) == pytest.approx(bound)
    # A slow round trip is less precise than a quick one, and does not make a claim look older.
    time.observe(sent, 1_000_500)
    assert time.earliest(1_000_500, 101.0) == pytest.approx(bound + 0.5)
    assert time.earliest(1_009_000, 101.0) == 101.0


def test_exchange_bounds_claims_until_two_windows_without_a_quicker_one_have_passed() -> None:
    time = StoreTime()
    time.observe(100.0, 1_000_000)
    # The store's time in each later reply is half a second after the request was sent.
    for sent, slower in ((130.0, 0.0), (160.0, 0.0), (190.0, 0.0), (191.0, 0.5)):
        now = 1_000_500 + round((sent - 100) * 1000)
        time.observe(sent, now)
        assert time.earliest(now, 999.0) == pytest.approx(sent + 0.5 - slower)


def test_beat_sends_the_newest_progress_once_and_again_if_it_failed() -> None:
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


class Far:
    """A store whose claims and settlements take 2 ms of virtual time and run one at a time."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._turn = asyncio.Lock()

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._inner, name)
        if name not in {"claim", "settle"}:
            return operation

        async def far(request: Any) -> Any:
            await pause(0.001)
            async with self._turn:
                await pause(0.001)
                return await operation(request)

        return far


@pytest.mark.parametrize("workers", [1, 4])
def test_workers_share_a_queue_with_hardly_any_idle_handler(workers: int) -> None:
    rounds, handlers, seconds = 15, 50, 0.2

    async def work(loop: VirtualLoop) -> float:
        app = hw.App(
            store=Far(open_store("memory://", clock=loop.clock)), timing=VirtualTiming(loop)
        )
        count, done, begun_at = workers * handlers * rounds, 0, loop.time()
        all_done = asyncio.Event()

        @app.job()
        async def step() -> None:
            nonlocal done
            # All that start together finish together, which must not be mistaken for speed.
            await pause(seconds)
            done += 1
            if done == count:
                all_done.set()

        await app.send_many_async(step.make() for _ in range(count))
        crew = [
            app.worker(concurrency=handlers, heartbeat="task", chores=False) for _ in range(workers)
        ]
        tasks = [asyncio.ensure_future(one.run()) for one in crew]
        await all_done.wait()
        took = loop.time() - begun_at
        for one in crew:
            one.stop()
        await asyncio.gather(*tasks)
        return rounds * seconds / took

    # A last round in which not all workers take part is a sixteenth of the whole.
    assert run_virtually(work, 1_700_000_000_000) >= 0.9


def test_beat_names_no_claim_whose_jobs_it_does_not_list() -> None:
    held = Held()

    class Meanwhile(dict[tuple[str, int], Claimed]):
        """A claim is answered while a beat lists the runs."""

        def copy(self) -> dict[tuple[str, int], Claimed]:
            runs = super().copy()
            held.take(1, [claimed(1)])
            return runs

    held.runs = Meanwhile()
    assert held.listed() == (0, ())


def test_claim_is_named_once_all_its_jobs_are_listed() -> None:
    held = Held()

    def arriving() -> Iterator[Claimed]:
        for number in (1, 2):
            yield claimed(number)
            assert held.request == 4

    held.take(4, [])
    held.take(5, arriving())
    assert held.listed() == (5, (("job 1", 1), ("job 2", 2)))
