"""A worker that is asked to stop drains its jobs or hands them back, and unregisters."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

import pytest

import headway as hw
from headway.contract.claims import ClaimReply, ClaimRequest
from headway.contract.outcomes import GaveBack, SettleRequest, Succeeded, Verdict
from headway.contract.views import JobQuery, WorkersQuery
from headway.core.errors import InvalidState, StoreUnavailable
from headway.core.job import MAX_BATCH, derived_id
from headway.lab.virtual_time import VirtualLoop, VirtualTiming, run_virtually
from headway.runtime.timing import Timing, pause
from headway.runtime.worker.lease import Held
from headway.runtime.worker.settler import Settler
from headway.stores import open_store
from headway.stores.memory import MemoryStore
from headway.testing.faulty import Fault, FaultyStore
from tests.runtime.observed_store import LIMIT, ObservedStore, soon, working


async def ended(task: asyncio.Task[None]) -> None:
    async with asyncio.timeout(LIMIT):
        await task


async def test_stop_lets_handlers_finish_and_hands_prefetched_jobs_back_at_once(
    app: hw.App, store: ObservedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise the job is back before a slow machine sees that it was claimed.
    monkeypatch.setattr("headway.runtime.worker.claimer.CHECK_EVERY", LIMIT)
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.job()
    async def work(job: hw.Job, n: int) -> int:
        begun.set()
        await go_on.wait()
        return n

    worker = app.worker(concurrency=1, chores=False)
    task = asyncio.create_task(worker.run())
    first = await app.send_async(work, n=1)
    await soon(begun)
    ready = await app.send_async(work, n=2)
    current: Any = worker._current
    current._claimer._prefetch.target = 5
    current.queue.asked.set()
    await store.becomes(ready.id, "running")
    worker.stop()
    back = await store.becomes(ready.id, "waiting")
    assert (await store.job(first.id)).state == "running"
    go_on.set()
    await ended(task)
    done = await store.job(first.id)
    assert (done.state, done.result) == ("succeeded", b"1")
    assert (back.attempt, back.runs[0].outcome) == (0, "released")


async def test_stop_hands_back_at_once_what_a_claim_in_flight_returns(
    app: hw.App, store: ObservedStore
) -> None:
    begun, go_on, claimed, brought = (asyncio.Event() for _ in range(4))
    claim = store.claim

    async def slow(request: ClaimRequest) -> ClaimReply:
        reply = await claim(request)
        if begun.is_set() and reply.jobs:
            claimed.set()
            await brought.wait()
        return reply

    @app.job()
    async def work(job: hw.Job, n: int) -> None:
        begun.set()
        await go_on.wait()

    vars(store)["claim"] = slow
    worker = app.worker(concurrency=1, chores=False)
    task = asyncio.create_task(worker.run())
    first = await app.send_async(work, n=1)
    await soon(begun)
    ready = await app.send_async(work, n=2)
    current: Any = worker._current
    current._claimer._prefetch.target = 5
    current.queue.asked.set()
    await soon(claimed)
    worker.stop()
    while not current._claimer._stopping:
        await pause(0)
    brought.set()
    await store.becomes(ready.id, "waiting")
    assert (await store.job(first.id)).state == "running"
    go_on.set()
    await ended(task)


async def test_handlers_beyond_the_grace_are_stopped_and_handed_back(
    app: hw.App, store: ObservedStore
) -> None:
    begun, cleaned = asyncio.Event(), asyncio.Event()

    @app.job()
    async def work(job: hw.Job) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    sent = await app.send_async(work)
    worker = app.worker(grace="10ms")
    task = asyncio.create_task(worker.run())
    await soon(begun)
    worker.stop()
    await ended(task)
    view = await store.job(sent.id)
    assert cleaned.is_set()
    assert (view.state, view.attempt, view.runs[0].outcome) == ("waiting", 0, "released")


def test_handler_that_cleans_up_after_a_cancel_may_finish_while_its_worker_stops() -> None:
    async def work(loop: VirtualLoop) -> tuple[str, list[str | None]]:
        timing, begun, cleaning = VirtualTiming(loop), asyncio.Event(), asyncio.Event()
        app = hw.App(store=open_store("memory://", clock=loop.clock), timing=timing)
        cleaned: list[str | None] = []

        @app.job()
        async def call(job: hw.Job) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                cleaning.set()
                await timing.pause(2)
                cleaned.append(job.stop)

        sent = await app.send_async(call)
        worker = app.worker(heartbeat="task", chores=False, lease="1s")
        running = asyncio.ensure_future(worker.run())
        await begun.wait()
        await app.cancel_async(sent.id)
        await cleaning.wait()
        worker.stop(now=True)
        await running
        view = await app.store.read(JobQuery(id=sent.id))
        assert view is not None
        return view.state, cleaned

    assert run_virtually(work, 1_700_000_000_000) == ("cancelled", ["cancel"])


@pytest.mark.parametrize("again", [(True,), (True, False)], ids=["", "then a third"])
def test_second_stop_ends_the_grace_at_once(again: tuple[bool, ...]) -> None:
    async def work(loop: VirtualLoop) -> tuple[str, float]:
        timing, begun = VirtualTiming(loop), asyncio.Event()
        app = hw.App(store=open_store("memory://", clock=loop.clock), timing=timing)

        @app.job()
        async def call(job: hw.Job) -> None:
            begun.set()
            await asyncio.Event().wait()

        sent = await app.send_async(call)
        worker = app.worker(heartbeat="task", chores=False, grace="1h")
        running = asyncio.ensure_future(worker.run())
        await begun.wait()
        worker.stop()
        await timing.pause(60)
        assert not running.done()
        stopped_at = timing.monotonic()
        for now in again:
            worker.stop(now=now)
        await running
        view = await app.store.read(JobQuery(id=sent.id))
        assert view is not None
        return view.state, timing.monotonic() - stopped_at

    assert run_virtually(work, 1_700_000_000_000) == ("waiting", 0)


async def stop_twice(app: hw.App, begun: asyncio.Event) -> None:
    """Run a worker until its handler has started, and stop it twice."""
    worker = app.worker(grace="1h")
    task = asyncio.create_task(worker.run())
    await soon(begun)
    worker.stop()
    worker.stop(now=True)
    await ended(task)


def still_running(caplog: pytest.LogCaptureFixture) -> str:
    """Return the log message about handlers that are still running."""
    logged = [record.getMessage() for record in caplog.records]
    (line,) = [one for one in logged if "still running after stop" in one]
    return line


async def test_second_stop_abandons_a_handler_that_swallows_its_cancellation(
    app: hw.App,
    store: ObservedStore,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headway.runtime.worker.worker.STOP_LIMIT", 0.01)
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.job()
    async def work(job: hw.Job) -> None:
        begun.set()
        while not go_on.is_set():
            with suppress(asyncio.CancelledError):
                await go_on.wait()

    sent = await app.send_async(work)
    await stop_twice(app, begun)
    go_on.set()
    assert (await store.job(sent.id)).state == "running"
    assert f"the worker exits without them: work {sent.id}" in still_running(caplog)


async def test_handler_that_ends_only_when_it_is_abandoned_does_not_keep_its_worker(
    app: hw.App, store: ObservedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.runtime.worker.worker.STOP_LIMIT", 0.01)
    begun = asyncio.Event()

    @app.job()
    async def work(job: hw.Job) -> None:
        begun.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    sent = await app.send_async(work)
    worker = app.worker(grace="10ms")
    task = asyncio.create_task(worker.run())
    await soon(begun)
    worker.stop()
    await ended(task)
    assert (await store.job(sent.id)).state == "running"


async def test_second_stop_says_that_a_handler_in_a_thread_keeps_the_process(
    app: hw.App,
    store: ObservedStore,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headway.runtime.worker.worker.STOP_LIMIT", 0.01)
    begun, loop, go_on = asyncio.Event(), asyncio.get_running_loop(), threading.Event()

    @app.job()
    def work(job: hw.Job) -> None:
        loop.call_soon_threadsafe(begun.set)
        assert go_on.wait(LIMIT)

    sent = await app.send_async(work)
    await stop_twice(app, begun)
    go_on.set()
    assert f"its process ends after those in threads: work {sent.id}" in still_running(caplog)


async def test_stopped_worker_leaves_and_does_not_count_as_dead(
    app: hw.App, store: ObservedStore
) -> None:
    sent = await app.send_async("noop")
    async with working(app, name="host:7", chores=False) as worker:
        await store.ends(sent.id)
        await store.until(lambda: _beaten(store))
        workers = await store.read(WorkersQuery())
    assert len(workers) == 1, workers
    live = workers[0]
    request, _ = store.asked("beat")[-1]
    assert (live.id, live.name, live.lanes) == (worker.id, "host:7", ("main",))
    assert (request.leaving, request.running) == (True, ())


async def _beaten(store: ObservedStore) -> bool:
    return bool(store.asked("beat"))


async def test_each_run_of_a_worker_has_a_random_id(app: hw.App, store: ObservedStore) -> None:
    worker = app.worker(chores=False)
    ids: list[str] = []
    for _ in range(2):
        worker.stop()
        await ended(asyncio.create_task(worker.run()))
        ids.append(worker.id)
    assert len(set(ids)) == 2
    assert all(len(one) == 32 for one in ids)


async def test_worker_that_runs_is_not_run_again_because_a_stop_would_reach_one_run_only(
    app: hw.App, store: ObservedStore
) -> None:
    async with working(app, chores=False) as worker:
        await store.until(lambda: _beaten(store))
        first = worker.id
        with pytest.raises(InvalidState, match="already runs"):
            await worker.run()
        assert worker.id == first
    await ended(asyncio.create_task(app.worker(until_idle=True).run()))


async def test_stop_waits_for_a_thread_that_nothing_can_stop(
    app: hw.App, store: ObservedStore
) -> None:
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()
    go_on = threading.Event()

    @app.job()
    def work(job: hw.Job) -> str:
        loop.call_soon_threadsafe(begun.set)
        assert go_on.wait(LIMIT)
        return "whole"

    sent = await app.send_async(work)
    worker = app.worker(grace="1ms")
    task = asyncio.create_task(worker.run())
    await soon(begun)
    worker.stop()
    current: Any = worker._current

    async def was_cancelled() -> bool:
        return any(slot.job is not None and slot.job.cancelled for slot in current._slots)

    async with asyncio.timeout(LIMIT):
        while not await was_cancelled():
            await asyncio.wait([task], timeout=0.005)
    assert not task.done()
    go_on.set()
    await ended(task)
    view = await store.job(sent.id)
    assert (view.state, view.result) == ("succeeded", b'"whole"')


async def test_cancelled_run_hands_back_before_it_ends(app: hw.App, store: ObservedStore) -> None:
    begun = asyncio.Event()

    @app.job()
    async def work(job: hw.Job) -> None:
        begun.set()
        await asyncio.Event().wait()

    sent = await app.send_async(work)
    task = asyncio.create_task(app.worker(grace="1h").run())
    await soon(begun)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ended(task)
    assert (await store.job(sent.id)).state == "waiting"


@pytest.mark.parametrize("first", ["stop", "cancel"])
async def test_run_cancelled_while_shutting_down_still_hands_back_and_leaves(
    app: hw.App, store: ObservedStore, first: str
) -> None:
    begun, cleaning, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @app.job()
    async def work(job: hw.Job) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await go_on.wait()

    sent = await app.send_async(work)
    worker = app.worker(grace="1ms")
    before = asyncio.all_tasks()
    task = asyncio.create_task(worker.run())
    await soon(begun)
    (worker.stop if first == "stop" else task.cancel)()
    await soon(cleaning)
    for _ in range(3):
        task.cancel()
        await pause(0)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await ended(task)
    assert asyncio.all_tasks() <= before
    # After the heartbeat ended: one that continues alone would keep the job forever.
    request, _ = store.asked("beat")[-1]
    assert (request.leaving, request.running) == (True, ())
    assert (await store.job(sent.id)).state == "waiting"


async def test_handed_over_job_is_not_handed_back_by_a_stop(
    app: hw.App, store: ObservedStore
) -> None:
    begun = asyncio.Event()

    @app.job()
    async def call(job: hw.Job) -> None:
        await job.hand_over("CA1")
        begun.set()
        await asyncio.Event().wait()

    sent = await app.send_async(call)
    worker = app.worker(grace="1ms")
    task = asyncio.create_task(worker.run())
    await soon(begun)
    worker.stop()
    await ended(task)
    view = await store.job(sent.id)
    assert (view.state, view.in_doubt, view.run) == ("awaiting", False, 1)


@pytest.mark.parametrize("written", [False, True])
async def test_handler_stopped_before_its_hand_over_is_answered_runs_again(
    app: hw.App, store: ObservedStore, written: bool
) -> None:
    settle, sent_off, answers = store.settle, asyncio.Event(), asyncio.Event()

    async def settle_late(request: SettleRequest) -> list[Verdict]:
        verdicts = await settle(request) if written else []
        sent_off.set()
        await answers.wait()
        return verdicts or await settle(request)

    stopped, dialled = asyncio.Event(), list[int]()

    @app.job(retry=hw.Backoff(attempts=1))
    async def call(job: hw.Job) -> None:
        try:
            await job.hand_over("CA1")
        except asyncio.CancelledError:
            stopped.set()
            raise
        dialled.append(job.run)

    sent = await app.send_async(call)
    worker = app.worker(grace="1ms")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "settle", settle_late)
        task = asyncio.create_task(worker.run())
        await soon(sent_off)
        worker.stop()
        await soon(stopped)
        answers.set()
        await ended(task)
    assert (await store.job(sent.id)).reason == "its worker stopped"
    async with working(app):
        view = await store.becomes(sent.id, "awaiting")
    assert (dialled, view.run, view.attempt, view.in_doubt) == ([2], 2, 1, False)


async def test_worker_serves_several_lanes_in_strict_order(
    app: hw.App, store: ObservedStore
) -> None:
    order: list[str] = []

    @app.job(lane="urgent")
    async def first(job: hw.Job) -> None:
        order.append(job.lane)

    @app.job(lane="later")
    async def second(job: hw.Job) -> None:
        order.append(job.lane)

    await app.send_many_async([second.make() for _ in range(3)])
    last = await app.send_many_async([first.make() for _ in range(3)])
    async with working(app, lanes="urgent,later", order="strict", concurrency=1, prefetch=0):
        await store.ends(last[-1].id)
        await store.until(lambda: _six(order))
    assert order == ["urgent"] * 3 + ["later"] * 3


async def _six(order: list[str]) -> bool:
    return len(order) == 6


def away(operation: str) -> FaultyStore:
    """A store that refuses an operation repeatedly."""
    store = FaultyStore(MemoryStore())
    for nth in range(1, 200):
        store.plan(Fault.REFUSE, operation=operation, nth=nth)
    return store


async def test_waiters_for_a_reply_get_an_error_when_the_worker_has_stopped() -> None:
    settler = Settler(away("settle"), "w", Held(), Timing())
    running = asyncio.create_task(settler.run())
    waiting = asyncio.create_task(settler.write(GaveBack(derived_id("a"), 1, gate="line")))
    await asyncio.sleep(0)  # noqa: TID251  (lets both begin; no time passes)
    running.cancel()
    await asyncio.wait((running,))
    async with asyncio.timeout(LIMIT):
        with pytest.raises(StoreUnavailable, match="has stopped"):
            await waiting
        with pytest.raises(StoreUnavailable, match="has stopped"):
            await settler.write(GaveBack(derived_id("a"), 1, gate="line"))


async def test_outcomes_are_given_up_in_a_hurry_while_the_store_is_unreachable() -> None:
    settler = Settler(away("settle"), "w", Held(), Timing())
    settler.put(Succeeded(derived_id("a"), 1))
    settler.close(hurry=True)
    async with asyncio.timeout(LIMIT):
        with pytest.raises(StoreUnavailable, match="as planned"):
            await settler.run()


async def test_many_outcomes_are_written_in_requests_of_a_thousand() -> None:
    store = ObservedStore(MemoryStore())
    settler = Settler(store, "w", Held(), Timing())  # type: ignore[arg-type]
    for number in range(MAX_BATCH + 1):
        settler.put(Succeeded(derived_id(str(number)), 1))
    settler.close()
    await settler.run()
    assert [len(request.outcomes) for request, _ in store.asked("settle")] == [MAX_BATCH, 1]


async def test_outcomes_whose_request_was_cancelled_are_written_first_by_the_next_run() -> None:
    faulty = FaultyStore(MemoryStore())
    faulty.plan(Fault.REFUSE, operation="settle")
    store = ObservedStore(faulty)
    settler = Settler(store, "w", Held(), Timing())
    outcomes = [Succeeded(derived_id(name), 1) for name in ("a", "b")]
    settler.put(outcomes[0])
    running = asyncio.create_task(settler.run())
    while not faulty.calls:
        await pause(0)
    settler.put(outcomes[1])
    running.cancel()
    await asyncio.wait((running,))
    assert (running.cancelled(), settler.pending, settler.settled) == (True, 2, 0)
    settler.close()
    await settler.run()
    assert (settler.pending, settler.settled) == (0, 2)
    written = [request.outcomes for request, _ in store.asked("settle")]
    assert written == [(outcomes[0],), tuple(outcomes)]


@pytest.mark.parametrize("place", ["loop", "thread"])
def test_background_worker_of_asyncio_run_leaves_no_run_of_an_ended_handler(
    url: str, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    app = hw.App(url)

    @app.job(retry=hw.Backoff(attempts=1))
    async def loop(job: hw.Job) -> None:
        begun.set()
        await asyncio.Event().wait()

    @app.job(retry=hw.Backoff(attempts=1))
    def thread(job: hw.Job) -> None:
        begun.set()
        go_on.wait(LIMIT)

    async def start() -> str:
        sent = await app.send_async(place)
        running.append(asyncio.create_task(app.worker(concurrency=4).run()))
        assert await asyncio.to_thread(begun.wait, LIMIT)
        return sent.id

    running: list[asyncio.Task[None]] = []
    with app:
        sent = asyncio.run(start())
        go_on.set()
        view = app.find(sent)
        assert view is not None
        if place == "loop":
            # Released although it had only one attempt, and its worker has left.
            assert (view.state, view.runs[0].outcome) == ("waiting", "released")
        else:
            # A thread cannot be stopped: its run is kept until the lease expires.
            assert view.state == "running"
    assert running[0].cancelled()
    assert "cancelled from outside" not in caplog.text
