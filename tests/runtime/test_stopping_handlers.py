"""A handler is asked to stop: by a cancel, a timeout, or a lost lease."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import headway as hw
from headway.contract.operate import Verb
from tests.runtime.observed_store import LIMIT, ObservedStore, beat_soon, soon, working


async def test_cancel_reaches_an_async_handler_by_the_next_beat(
    app: hw.App, store: ObservedStore
) -> None:
    begun, cleaned = asyncio.Event(), asyncio.Event()

    @app.job()
    async def work(job: hw.Job) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            assert job.cancelled
            cleaned.set()

    @app.job()
    async def after(job: hw.Job) -> None: ...

    sent = await app.send_async(work)
    async with working(app, concurrency=1) as worker:
        await soon(begun)
        assert await store.move(Verb.CANCEL, sent.id) == ["asked"]
        beat_soon(worker)
        view = await store.ends(sent.id)
        later = await store.ends((await app.send_async(after)).id)
    assert cleaned.is_set()
    assert (view.state, view.runs[0].outcome) == ("cancelled", "dead")
    assert later.state == "succeeded"


async def test_handler_that_cleans_up_is_not_cancelled_again_by_later_beats(
    app: hw.App, store: ObservedStore
) -> None:
    begun, cleaning, go_on, cleaned = (asyncio.Event() for _ in range(4))

    @app.job()
    async def work(job: hw.Job) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await go_on.wait()
            cleaned.set()

    async def beaten() -> bool:
        return len(store.asked("beat")) > beats

    sent = await app.send_async(work)
    async with working(app, concurrency=1) as worker:
        await soon(begun)
        await store.move(Verb.CANCEL, sent.id)
        beat_soon(worker)
        await soon(cleaning)
        for _ in range(2):  # when the second is sent, the first reply has been passed on
            beats = len(store.asked("beat"))
            beat_soon(worker)
            await store.until(beaten)
        go_on.set()
        await store.ends(sent.id)
    assert cleaned.is_set()


async def test_cancelled_job_ends_cancelled_whatever_its_handler_does(
    app: hw.App, store: ObservedStore
) -> None:
    begun = asyncio.Event()

    @app.job()
    async def stubborn(job: hw.Job) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done all the same"
        return "never"

    @app.job()
    async def after(job: hw.Job) -> int:
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    sent = await app.send_async(stubborn)
    async with working(app, concurrency=1) as worker:
        await soon(begun)
        await store.move(Verb.CANCEL, sent.id)
        beat_soon(worker)
        view = await store.ends(sent.id)
        # The handler slot has cleared the cancellation.
        later = await store.ends((await app.send_async(after)).id)
    assert (view.state, view.runs[0].outcome) == ("cancelled", "succeeded")
    assert (later.state, later.result) == ("succeeded", b"0")


@pytest.mark.parametrize("gives_up", [True, False])
async def test_cancelled_handler_that_gives_up_is_reported_and_one_that_stops_is_not(
    app: hw.App, store: ObservedStore, *, gives_up: bool
) -> None:
    begun, failures = asyncio.Event(), list[hw.Failure]()
    app.on_failure(failures.append)

    @app.job()
    async def work(job: hw.Job) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if gives_up:
                raise hw.Dead("cannot be undone") from None
            raise

    sent = await app.send_async(work)
    async with working(app) as worker:
        await soon(begun)
        await store.move(Verb.CANCEL, sent.id)
        beat_soon(worker)
        assert (await store.ends(sent.id)).state == "cancelled"
    assert [(one.becomes, one.text) for one in failures] == (
        [("cancelled", "cannot be undone")] if gives_up else []
    )


async def test_cancelled_job_that_was_not_started_is_handed_back_and_ends(
    app: hw.App, store: ObservedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise the job is back before a slow machine sees that it was claimed.
    monkeypatch.setattr("headway.runtime.worker.claimer.CHECK_EVERY", LIMIT)
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.job()
    async def first(job: hw.Job) -> None:
        begun.set()
        await go_on.wait()

    @app.job()
    async def second(job: hw.Job) -> None:
        message = "it must not start"
        raise AssertionError(message)

    await app.send_async(first, priority=1)
    async with working(app, concurrency=1) as worker:
        await soon(begun)
        current: Any = worker._current
        # Prefetched, as happens with quick handlers.
        current._claimer._prefetch.target = 5
        sent = await app.send_async(second)
        current.queue.asked.set()
        await store.becomes(sent.id, "running")
        assert await store.move(Verb.CANCEL, sent.id) == ["asked"]
        beat_soon(worker)
        view = await store.ends(sent.id)
        go_on.set()
    assert (view.state, view.runs[0].outcome) == ("cancelled", "released")


async def test_prefetched_job_whose_run_was_lost_is_not_started(
    app: hw.App, store: ObservedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.runtime.worker.claimer.CHECK_EVERY", LIMIT)
    begun, go_on, started = (asyncio.Event() for _ in range(3))

    @app.job()
    async def first(job: hw.Job) -> None:
        begun.set()
        await go_on.wait()

    @app.job()
    async def second(job: hw.Job) -> None:
        started.set()

    async def beaten() -> bool:
        return len(store.asked("beat")) > beats

    one = await app.send_async(first, priority=1)
    async with working(app, concurrency=1) as worker:
        await soon(begun)
        current: Any = worker._current
        current._claimer._prefetch.target = 5
        sent = await app.send_async(second)
        current.queue.asked.set()
        await store.becomes(sent.id, "running")
        assert await store.move(Verb.KILL, sent.id) == ["done"]
        for _ in range(2):  # when the second is sent, the first reply has been passed on
            beats = len(store.asked("beat"))
            beat_soon(worker)
            await store.until(beaten)
        go_on.set()
        await store.ends(one.id)
    assert not started.is_set()


@pytest.mark.parametrize("swallow", [False, True])
async def test_async_handler_is_stopped_at_its_timeout(
    app: hw.App, store: ObservedStore, swallow: bool
) -> None:
    @app.job(timeout="20ms", retry=hw.Backoff(attempts=1))
    async def slow(job: hw.Job) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not swallow:
                raise
        return "late, but done"

    sent = await app.send_async(slow)
    async with working(app):
        view = await store.ends(sent.id)
    if swallow:
        assert (view.state, view.result) == ("succeeded", b'"late, but done"')
    else:
        assert view.state == "dead"
        said = "handler_timeout: HandlerTimeout: the handler of 'slow' exceeded its timeout"
        assert said in view.runs[0].error


async def test_handlers_own_timeout_is_not_taken_for_the_kinds(
    app: hw.App, store: ObservedStore
) -> None:
    @app.job(timeout="1h", retry=hw.Backoff(attempts=1))
    async def ask(job: hw.Job) -> None:
        async with asyncio.timeout(0.001):
            await asyncio.Event().wait()

    sent = await app.send_async(ask)
    async with working(app):
        view = await store.ends(sent.id)
    assert view.runs[0].error.startswith("TimeoutError")


@pytest.mark.parametrize("swallow", [False, True])
async def test_handler_learns_that_its_lease_is_lost_and_writes_nothing(
    app: hw.App, store: ObservedStore, swallow: bool
) -> None:
    begun, told = asyncio.Event(), asyncio.Event()
    errors: list[str] = []

    @app.job()
    async def work(job: hw.Job) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            try:
                await job.hand_over()
            except hw.LeaseLost as error:
                errors.append(error.code)
            told.set()
            if not swallow:
                raise
        return "too late"

    sent = await app.send_async(work)
    async with working(app) as worker:
        await soon(begun)
        # By force, as an operator would: the run is no longer live.
        assert await store.move(Verb.KILL, sent.id) == ["done"]
        beat_soon(worker)
        await soon(told)
    view = await store.job(sent.id)
    assert errors == ["lease_lost"]
    assert (view.state, view.run) == ("dead", 1)
    assert [
        type(outcome).__name__
        for request, _ in store.asked("settle")
        for outcome in request.outcomes
    ] == ["HandedOver"]


async def test_slot_of_a_lost_run_takes_the_next_job_and_its_worker_leaves(
    app: hw.App, store: ObservedStore
) -> None:
    begun = asyncio.Event()

    @app.job()
    async def work(job: hw.Job) -> None:
        begun.set()
        await asyncio.Event().wait()

    @app.job()
    async def after(job: hw.Job) -> None: ...

    sent = await app.send_async(work)
    async with working(app, concurrency=1) as worker:
        await soon(begun)
        assert await store.move(Verb.KILL, sent.id) == ["done"]
        beat_soon(worker)
        later = await store.ends((await app.send_async(after)).id)
        assert worker.running == 0
    assert later.state == "succeeded"
    # The worker holds nothing any more, so it need not keep its lease when it stops.
    request, _ = store.asked("beat")[-1]
    assert request.leaving


async def test_sync_handler_runs_in_a_thread_and_is_stopped_by_a_flag(
    app: hw.App, store: ObservedStore
) -> None:
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()
    names: list[str] = []

    @app.job()
    def work(job: hw.Job) -> str:
        names.append(threading.current_thread().name)
        loop.call_soon_threadsafe(begun.set)
        while not job.cancelled:
            stop.wait(0.005)
        return "stopped by itself"

    stop = threading.Event()
    sent = await app.send_async(work)
    async with working(app) as worker:
        await soon(begun)
        await store.move(Verb.CANCEL, sent.id)
        beat_soon(worker)
        view = await store.ends(sent.id)
    assert (view.state, view.result) == ("cancelled", b'"stopped by itself"')
    assert names[0].startswith("headway-handler")


async def test_sync_handler_learns_its_timeout_and_its_result_still_counts(
    app: hw.App, store: ObservedStore
) -> None:
    flag = threading.Event()

    @app.job(timeout="20ms", retry=hw.Backoff(attempts=1))
    def slow(job: hw.Job, gives_up: bool) -> str:
        while not job.cancelled:
            flag.wait(0.002)
        if gives_up:
            raise hw.HandlerCancelled("asked to stop")
        return "late, but done"

    done = await app.send_async(slow, gives_up=False)
    gave_up = await app.send_async(slow, gives_up=True)
    async with working(app):
        first, second = await store.ends(done.id), await store.ends(gave_up.id)
    assert (first.state, first.result) == ("succeeded", b'"late, but done"')
    assert (second.state, "handler_timeout" in second.runs[0].error) == ("dead", True)


async def test_sync_handler_writes_what_an_async_one_awaits(
    app: hw.App, store: ObservedStore
) -> None:
    @app.job(gates=[hw.Slots("desk", 1)])
    def call(job: hw.Job, word: str) -> None:
        job.sync.hand_over("CA1", timeout="30m")
        job.sync.known_as("CA2")
        job.sync.give_back("desk")
        job.sync.progress({"word": word})

    sent = await app.send_async(call, word="ringing")
    async with working(app):

        async def progressed() -> bool:
            return (await store.job(sent.id)).progress == b'{"word":"ringing"}'

        await store.becomes(sent.id, "awaiting")
        await app.signal_async("CA2", event="e", final="succeeded")
        view = await store.ends(sent.id)
    assert view.state == "succeeded"


async def test_async_handler_that_writes_synchronously_fails_instead_of_blocking_its_worker(
    app: hw.App, store: ObservedStore
) -> None:
    @app.job(retry=hw.Backoff(attempts=1))
    async def call(job: hw.Job) -> None:
        job.sync.hand_over()

    sent = await app.send_async(call)
    async with working(app):
        view = await store.ends(sent.id)
    assert "job.sync blocks the worker's event loop" in view.reason
    assert view.runs[0].handed_at is None


async def test_sync_handlers_do_not_wait_for_each_other(app: hw.App, store: ObservedStore) -> None:
    barrier = threading.Barrier(4)

    @app.job()
    def meet(job: hw.Job) -> int:
        return barrier.wait(LIMIT)

    sent = await app.send_many_async(meet.make() for _ in range(4))
    async with working(app, concurrency=4):
        views = [await store.ends(one.id) for one in sent]
    assert sorted(view.result for view in views) == [b"0", b"1", b"2", b"3"]


async def test_progress_is_sent_with_a_beat(app: hw.App, store: ObservedStore) -> None:
    go_on = asyncio.Event()

    @app.job()
    async def work(job: hw.Job) -> None:
        await job.progress({"done": 1, "of": 2})
        await go_on.wait()

    sent = await app.send_async(work)
    async with working(app):

        async def progressed() -> bool:
            return (await store.job(sent.id)).progress == b'{"done":1,"of":2}'

        await store.until(progressed)
        go_on.set()
        await store.ends(sent.id)
