"""Beats continue whatever handlers do, and handlers stop before a lease expires without a beat."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest

import headway as hw
from headway.contract.claims import BeatReply, BeatRequest, ClaimReply, ClaimRequest
from headway.contract.outcomes import SettleRequest, Succeeded
from headway.contract.views import JobQuery
from headway.core.errors import StoreCorrupt, StoreUnavailable
from headway.lab.virtual_time import VirtualLoop, VirtualTiming, run_virtually
from headway.runtime.timing import Timing, pause
from headway.runtime.worker.handler_slot import HandlerSlot
from headway.runtime.worker.lease import Heartbeat, Held, Lease
from headway.runtime.worker.loop_watch import LoopWatch
from headway.stores import open_store
from headway.stores.memory import MemoryStore
from headway.testing.clock import FakeClock
from headway.testing.faulty import Fault, FaultyStore, StoreProxy
from tests.runtime.observed_store import LIMIT, ObservedStore, beat_soon, soon, working


async def test_handler_that_blocks_the_loop_does_not_starve_the_heartbeat(
    store: ObservedStore,
) -> None:
    class Counting(ObservedStore):
        def _note(self, name: str, args: Any, reply: Any) -> None:
            super()._note(name, args, reply)
            if name == "beat":
                beats.release()

    beats = threading.Semaphore(0)
    app = hw.App(store=Counting(store.inner))

    @app.job()
    async def block(job: hw.Job) -> int:
        for n in range(3):
            await job.progress(n)
            while beats.acquire(blocking=False):
                pass
            # Nothing else runs in this loop until the next beat has been sent.
            assert beats.acquire(timeout=LIMIT)
        return job.run

    sent = await app.send_async(block)
    async with working(app):
        view = await app.store.ends(sent.id)  # pyright: ignore[reportAttributeAccessIssue]
    assert (view.state, view.result) == ("succeeded", b"1")
    assert view.progress is not None


async def test_handler_that_blocks_the_loop_is_reported_once_with_its_place(
    app: hw.App,
    store: ObservedStore,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headway.runtime.worker.loop_watch.BLOCKED_AFTER", 0)
    beats = threading.Semaphore(0)
    check = LoopWatch.check

    def checked(self: LoopWatch) -> None:
        check(self)
        beats.release()

    monkeypatch.setattr(LoopWatch, "check", checked)

    @app.job()
    async def block(job: hw.Job) -> None:
        # One beat asks the loop for a turn, the next ones find that it has not had one.
        for n in range(4):
            await job.progress(n)
            assert beats.acquire(timeout=LIMIT)

    sent = await app.send_async(block)
    async with working(app):
        await store.ends(sent.id)
    blocked = [one for one in caplog.messages if one.startswith("event loop blocked")]
    assert len(blocked) == 1
    assert f"kind=block id={sent.id} at=" in blocked[0]


async def test_loop_that_is_blocked_before_its_slots_start_is_reported(
    app: hw.App, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error in a check would end the heartbeat, and with it the worker."""
    monkeypatch.setattr("headway.runtime.worker.loop_watch.BLOCKED_AFTER", 0)
    watches: list[LoopWatch] = []
    make, start = LoopWatch.__init__, HandlerSlot.start

    def made(self: LoopWatch, *given: Any) -> None:
        make(self, *given)
        watches.append(self)

    def check_twice() -> None:
        watches[-1].check()
        watches[-1].check()

    def start_late(self: HandlerSlot, *given: Any) -> None:
        with ThreadPoolExecutor() as beats:
            beats.submit(check_twice).result(LIMIT)
        start(self, *given)

    monkeypatch.setattr(LoopWatch, "__init__", made)
    monkeypatch.setattr(HandlerSlot, "start", start_late)
    async with working(app):
        pass
    (blocked,) = {one.partition(" for ")[0] for one in caplog.messages if "blocked" in one}
    assert blocked == "event loop blocked"
    assert not any("kind=" in one for one in caplog.messages if "blocked" in one)


async def test_loop_that_runs_between_two_beats_is_not_reported(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.runtime.worker.loop_watch.BLOCKED_AFTER", 0)
    watch = LoopWatch(Timing(), lambda _: None)
    for _ in range(3):
        await asyncio.to_thread(watch.check)
        await pause(0)
    assert caplog.messages == []


@pytest.mark.parametrize("before", range(4))
async def test_loop_may_run_before_any_line_of_a_check(
    before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error in a check would end the heartbeat, and with it the worker."""
    monkeypatch.setattr("headway.runtime.worker.loop_watch.BLOCKED_AFTER", 0)
    watch = LoopWatch(Timing(), lambda _: None)
    watch.check()
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        if event == "line" and frame.f_code is LoopWatch.check.__code__:
            if lines == before:
                watch._on_turn()
            lines += 1
        return trace

    tracer = sys.gettrace()
    sys.settrace(trace)
    try:
        watch.check()
    finally:
        sys.settrace(tracer)
    assert lines > before


async def test_beat_lists_runs_until_their_settlement_is_answered(
    app: hw.App, store: ObservedStore
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.job()
    async def work(job: hw.Job) -> None:
        begun.set()
        await go_on.wait()

    sent = await app.send_async(work)
    async with working(app, chores=False) as worker:

        async def listed() -> bool:
            return any(request.running for request, _ in store.asked("beat"))

        await soon(begun)
        beat_soon(worker)
        await store.until(listed)
        go_on.set()
        await store.ends(sent.id)
    runs = [request.running for request, _ in store.asked("beat") if request.running]
    assert set(runs) == {((sent.id, 1),)}
    named = [request.request for request, _ in store.asked("beat") if request.running]
    claims = [request.request for request, reply in store.asked("claim") if reply.jobs]
    assert min(named) >= claims[0]


async def test_progress_is_recorded_though_not_awaited(app: hw.App, store: ObservedStore) -> None:
    go_on = asyncio.Event()

    @app.job()
    async def work(job: hw.Job) -> None:
        job.progress(1).close()  # closed to avoid a Python warning
        await go_on.wait()

    sent = await app.send_async(work)
    async with working(app, lease="10s", chores=False):

        async def progressed() -> bool:
            return (await store.job(sent.id)).progress == b"1"

        await store.until(progressed)
        go_on.set()
        view = await store.ends(sent.id)
    assert view.state == "succeeded"


async def test_progress_of_a_failed_beat_is_sent_with_the_next(store: ObservedStore) -> None:
    faulty = FaultyStore(store)
    app = hw.App(store=faulty)
    go_on = asyncio.Event()

    @app.job()
    async def work(job: hw.Job) -> None:
        faulty.plan(Fault.REFUSE, operation="beat")
        await job.progress({"done": 1})
        await go_on.wait()

    sent = await app.send_async(work)
    async with working(app, lease="10s", chores=False):

        async def progressed() -> bool:
            return (await store.job(sent.id)).progress == b'{"done":1}'

        await store.until(progressed)
        go_on.set()
        await store.ends(sent.id)
    assert faulty._planned == []


async def test_handlers_are_stopped_before_the_lease_ends_if_no_beat_succeeds(
    store: ObservedStore,
) -> None:
    faulty = FaultyStore(store.inner)
    app = hw.App(store=faulty)
    begun, stopped = asyncio.Event(), asyncio.Event()

    @app.job()
    async def work(job: hw.Job) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    sent = await app.send_async(work)
    worker = app.worker(lease="1s", chores=False)
    task = asyncio.create_task(worker.run())
    await soon(begun)
    for nth in range(1, 200):
        faulty.plan(Fault.REFUSE, operation="beat", nth=nth)
    await soon(stopped)
    worker.stop(now=True)
    await task
    view = await store.job(sent.id)
    assert view.state in {"waiting", "running"}
    assert view.run == 1


Answer = Callable[[float], float | None]
"""Returns after how many seconds a beat sent at this time is answered; None for never."""


def beat_virtually(
    answer: Answer, seconds: float, pokes: Sequence[float] = ()
) -> tuple[list[float], list[float]]:
    """Run a heartbeat with a lease of 12 s in virtual time.

    Args:
        answer: may raise the store's error.
        pokes: times at which there is progress to send.

    Returns:
        When it sent beats, and when it reported that the lease is about to end.
    """
    sent: list[float] = []
    lapses: list[float] = []

    async def run(loop: VirtualLoop) -> None:
        class Store(StoreProxy):
            async def beat(self, request: BeatRequest) -> BeatReply:
                sent.append(round(loop.time(), 3))
                reply = await super().beat(request)
                after = answer(loop.time())
                await (asyncio.Event().wait() if after is None else pause(after))
                return reply

        heartbeat = Heartbeat(
            Store(MemoryStore(lambda: round(1000 * loop.time()))),
            "w",
            name="",
            lanes=("main",),
            held=Held(),
            lease=Lease(12_000),
            timing=VirtualTiming(loop),
            on_reply=lambda _, extend: extend(),
            on_lapse=lambda: lapses.append(loop.time()),
        )
        for at in pokes:
            loop.call_at(at, heartbeat.poke)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await heartbeat.run()

    run_virtually(run, 0)
    return sent, lapses


def refuse(_at: float) -> float:
    message = "the store is unreachable"
    raise StoreUnavailable(message)


ANSWERS: dict[str, Answer] = {
    "refused": lambda at: refuse(at) if at else 0,
    "never answered": lambda at: None if at else 0,
    # The lease counts from the request.
    "refused after a slow reply": lambda at: refuse(at) if at else 0.5,
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_lapse_is_reported_once_a_sixth_of_the_lease_before_its_end(answer: str) -> None:
    _, lapses = beat_virtually(ANSWERS[answer], 20)
    assert lapses == [10]


def test_late_reply_does_not_put_off_the_next_beat_or_a_lapse() -> None:
    replies = {0: 0.0, 4: 5.75}
    sent, lapses = beat_virtually(replies.get, 20)
    assert sent[:3] == [0, 4, 9.75]
    # The beat at 4 gave a lease until 16.
    assert lapses == [14]


def test_second_lapse_is_reported_like_the_first() -> None:
    _, lapses = beat_virtually(lambda at: 0 if at in {0, 15} else refuse(at), 40)
    assert lapses == [10, 25]


def test_progress_sends_one_early_beat_a_quarter_second_after_the_last_at_the_earliest() -> None:
    # The second progress arrives while the beat for the first is under way.
    sent, _ = beat_virtually(lambda _: 0.125, 6, pokes=(1, 1.0625))
    assert sent == [0, 1, 1.25, 5.25]


def test_beat_that_hangs_right_after_another_leaves_time_to_repeat_it() -> None:
    sent, lapses = beat_virtually(lambda at: None if 0 < at < 1 else 0, 10.5, pokes=[0.1])
    assert (sent, lapses) == ([0, 0.25, 8.75], [])


def test_reply_after_a_later_one_shortens_no_lease() -> None:
    lease = Lease(3_000)
    lease.extend(10.0, 3_000)
    lease.extend(5.0, 3_000)
    assert lease.ends == 13.0


def test_progress_of_a_failed_beat_replaces_no_newer_one() -> None:
    held = Held()
    held.note_progress(("a", 1), b"1")
    failed = held.take_progress()
    held.note_progress(("a", 1), b"2")
    held.put_back(failed)
    assert held.take_progress() == (("a", 1, b"2"),)


async def test_last_beat_sends_the_progress_that_no_other_has_sent() -> None:
    store, held = ObservedStore(MemoryStore(FakeClock())), Held()
    heartbeat = Heartbeat(
        store,
        "w",
        name="",
        lanes=("main",),
        held=held,
        lease=Lease(30_000),
        timing=Timing(),
        on_reply=lambda _, extend: extend(),
        on_lapse=lambda: None,
    )
    held.note_progress(("a", 1), b"1")
    await heartbeat.leave()
    [(request, _)] = store.asked("beat")
    assert (request.leaving, request.progress) == (True, (("a", 1, b"1"),))


async def test_expiry_postponed_by_a_claim_stops_no_handler(
    app: hw.App, store: ObservedStore
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.job()
    async def work(job: hw.Job) -> None:
        begun.set()
        await go_on.wait()

    sent = await app.send_async(work)
    async with working(app) as worker:
        await soon(begun)
        current: Any = worker._current
        current._on_lapse()
        for _ in range(3):
            await pause(0)
        go_on.set()
        view = await store.ends(sent.id)
    assert (view.state, view.run) == ("succeeded", 1)


def test_prefetched_jobs_are_handed_back_if_no_beat_succeeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headway.runtime.worker.claimer.CHECK_EVERY", LIMIT)

    class Unheard(StoreProxy):
        async def beat(self, request: BeatRequest) -> BeatReply:
            message = "away"
            raise StoreUnavailable(message)

    async def work(loop: VirtualLoop) -> str:
        timing, begun = VirtualTiming(loop), asyncio.Event()
        app = hw.App(store=Unheard(open_store("memory://", clock=loop.clock)), timing=timing)

        @app.job()
        async def first(job: hw.Job) -> None:
            begun.set()
            await asyncio.Event().wait()

        @app.job()
        async def second(job: hw.Job) -> None: ...

        await app.send_async(first)
        worker = app.worker(concurrency=1, heartbeat="task", chores=False, lease="1s")
        running = asyncio.ensure_future(worker.run())
        await begun.wait()
        sent = await app.send_async(second)
        current: Any = worker._current
        current._claimer._prefetch.target = 5
        current.queue.asked.set()
        outcome = ""
        while not outcome:
            await timing.pause(0.01)
            view = await app.store.read(JobQuery(id=sent.id))
            assert view is not None
            outcome = next((run.outcome or "" for run in view.runs), "")
        worker.stop(now=True)
        await running
        return outcome

    assert run_virtually(work, 1_700_000_000_000) == "released"


class Suspended(Timing):
    """Real time, and the seconds for which the process was suspended."""

    suspended = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.suspended


@pytest.mark.parametrize("first", ["beat", "claim", "reply"])
async def test_worker_that_was_suspended_starts_no_job_that_another_worker_has_run(
    first: str,
) -> None:
    clock, timing = FakeClock(), Suspended()
    store = ObservedStore(MemoryStore(clock))
    app = hw.App(store=store, timing=timing)
    begun, go_on, ran = asyncio.Event(), asyncio.Event(), list[str]()
    retry = hw.Backoff(attempts=2, base="1ms", cap="1ms")

    @app.job(retry=retry)
    async def running(job: hw.Job) -> None:
        begun.set()
        await go_on.wait()

    @app.job(retry=retry)
    async def prefetched(job: hw.Job, name: str) -> None:
        ran.append(name)

    await app.send_async(running)
    async with working(app, concurrency=1, heartbeat="task", chores=False) as worker:
        await soon(begun)
        current: Any = worker._current
        await app.send_async(prefetched, name="one")
        current._claimer._prefetch.target = 1
        current.queue.asked.set()

        async def is_prefetched() -> bool:
            return bool(current.queue.plain)

        await store.until(is_prefetched)
        # It is suspended for longer than its lease, and another worker runs its jobs.
        timing.suspended += 60
        clock.advance(60_000)
        await store.inner.sweep(9)
        clock.advance(10)
        claim = ClaimRequest(worker="other", request=1, lanes=(("main", 1),), n=9, lease_ms=60_000)
        jobs = (await store.inner.claim(claim)).jobs
        assert [job.run for job in jobs] == [2, 2]
        outcomes = tuple(Succeeded(job.id, job.run) for job in jobs)
        await store.inner.settle(SettleRequest(worker="other", outcomes=outcomes))
        await store.inner.enqueue([prefetched.make(name="two")])
        # Now it continues.
        if first == "reply":
            # The reply reaches the heartbeat's thread before the worker's loop has had a turn.
            lost = tuple((job.id, 1) for job in jobs)
            reply = BeatReply(now=clock(), lease_until=clock() + 30_000, lost=lost, cancel=())
            current._on_beat(reply, lambda: current._lease.extend(timing.monotonic(), 30_000))
            assert current._lease.lapsing(timing.monotonic())
            await pause(0)
        go_on.set()
        (current._heartbeat.poke if first == "beat" else current.queue.asked.set)()

        async def has_run() -> bool:
            return bool(ran)

        await store.until(has_run)
    assert ran == ["two"]


@pytest.mark.parametrize("first", ["beat", "claim"])
async def test_job_of_a_claim_during_which_the_worker_was_suspended_is_not_started(
    first: str,
) -> None:
    clock, timing = FakeClock(), Suspended()

    class Slow(StoreProxy):
        async def claim(self, request: ClaimRequest) -> ClaimReply:
            reply = await self.inner.claim(request)
            if reply.jobs and not claimed.is_set():
                claimed.set()
                await claim_answered.wait()
            return reply

        async def beat(self, request: BeatRequest) -> BeatReply:
            reply = await self.inner.beat(request)
            if claimed.is_set():
                beaten.set()
                await beat_answered.wait()
            return reply

    claimed, claim_answered, ran = asyncio.Event(), asyncio.Event(), list[str]()
    beaten, beat_answered = asyncio.Event(), asyncio.Event()
    store = ObservedStore(Slow(MemoryStore(clock)))
    app = hw.App(store=store, timing=timing)

    @app.job(retry=hw.Backoff(attempts=2, base="1ms", cap="1ms"))
    async def work(job: hw.Job, name: str) -> None:
        ran.append(name)

    await app.send_async(work, name="one")
    async with working(app, concurrency=1, heartbeat="task", chores=False) as worker:
        await soon(claimed)
        timing.suspended += 60
        clock.advance(60_000)
        await store.inner.sweep(9)
        clock.advance(10)
        claim = ClaimRequest(worker="other", request=1, lanes=(("main", 1),), lease_ms=60_000)
        (job,) = (await store.inner.inner.claim(claim)).jobs
        outcome = Succeeded(job.id, job.run)
        await store.inner.settle(SettleRequest(worker="other", outcomes=(outcome,)))
        await app.send_async(work, name="two")
        # The beat does not list the job of the claim, so its reply does not say that it is lost.
        beat_soon(worker)
        await soon(beaten)
        for answered in (
            (beat_answered, claim_answered) if first == "beat" else (claim_answered, beat_answered)
        ):
            answered.set()
            for _ in range(9):
                await pause(0)

        async def has_run() -> bool:
            return bool(ran)

        await store.until(has_run)
    assert ran == ["two"]


async def test_job_found_by_a_poll_longer_than_the_lease_is_started_if_beats_renewed_it() -> None:
    class Polled(StoreProxy):
        async def claim(self, request: ClaimRequest) -> ClaimReply:
            reply = await self.inner.claim(request)
            # As a client reports it, whose poll began long ago.
            return replace(reply, lease_until=reply.now - 1) if reply.jobs else reply

    store = ObservedStore(Polled(MemoryStore()))
    app = hw.App(store=store)

    @app.job()
    async def work(job: hw.Job) -> int:
        return job.run

    async with working(app, concurrency=1, heartbeat="task", chores=False):

        async def is_idle() -> bool:
            return bool(store.asked("claim"))

        await store.until(is_idle)
        sent = await app.send_async(work)
        assert (await store.ends(sent.id)).result == b"1"


@pytest.mark.parametrize("operation", ["claim", "beat"])
async def test_store_that_cannot_continue_stops_the_worker_loudly(
    store: ObservedStore, operation: str
) -> None:
    class Corrupt(ObservedStore):
        def __getattr__(self, name: str) -> Any:
            return corrupt if name == operation else super().__getattr__(name)

    async def corrupt(_request: Any) -> Any:
        message = "page 7 is damaged"
        raise StoreCorrupt(message)

    app = hw.App(store=Corrupt(store.inner))
    with pytest.raises(StoreCorrupt, match="page 7"):
        await asyncio.wait_for(app.worker().run(), LIMIT)


@pytest.mark.sampled
@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("operation", ["claim", "settle", "beat", "sweep", "wait"])
async def test_failing_operation_is_repeated_and_every_job_runs_once(
    store: ObservedStore, operation: str, fault: Fault
) -> None:
    faulty = FaultyStore(store.inner)
    watched = ObservedStore(faulty)
    app = hw.App(store=watched)
    ran: list[int] = []

    @app.job()
    async def work(job: hw.Job, n: int) -> int:
        ran.append(n)
        return job.run

    faulty.plan(fault, operation=operation, nth=1)
    faulty.plan(fault, operation=operation, nth=1)
    sent = await app.send_many_async(work.make(n=n) for n in range(20))
    async with working(app, concurrency=3):
        views = [await watched.ends(one.id) for one in sent]
    assert {(view.state, view.result) for view in views} == {("succeeded", b"1")}
    assert sorted(ran) == list(range(20))


async def test_frozen_store_time_is_logged_once_until_it_moves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Quick(Timing):
        """Two seconds of the clock pass between beats, without waiting."""

        seconds = 0.0

        def monotonic(self) -> float:
            return self.seconds

        async def wait(self, event: asyncio.Event, seconds: float) -> bool:
            beats.append(self.seconds)
            self.seconds += 2
            # The clock was set back at the start; it advances after the fourth beat, then stops.
            if len(beats) == 4:
                clock.advance(1)
            if len(beats) == 6:
                raise asyncio.CancelledError
            return False

    beats: list[float] = []
    clock = FakeClock()
    heartbeat = Heartbeat(
        MemoryStore(clock),
        "w",
        name="",
        lanes=("main",),
        held=Held(),
        lease=Lease(30_000),
        timing=Quick(),
        on_reply=lambda _, extend: extend(),
        on_lapse=lambda: None,
    )
    with pytest.raises(asyncio.CancelledError):
        await heartbeat.run()
    said = [one.getMessage() for one in caplog.records if "store time stopped" in one.getMessage()]
    assert [one.split()[3].removeprefix("at=") for one in said] == [
        "2026-01-01T00:00:00Z:",
        "2026-01-01T00:00:00.001Z:",
    ]
