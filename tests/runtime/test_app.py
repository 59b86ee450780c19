"""The app for callers that cannot await: the same code on a background loop."""

from __future__ import annotations

import asyncio
import gc
import math
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import headway as hw
from headway.contract.views import JobQuery, StatsQuery
from headway.core.job import MAX_BATCH
from headway.runtime.event_loop import Background
from headway.runtime.signals import SignalOptions
from headway.runtime.timing import pause
from headway.stores.memory.store import MemoryStore
from headway.testing.faulty import StoreProxy


class Suspending(StoreProxy):
    """A store whose calls suspend, as those over a network do."""

    runs_inline = False

    async def _call(self, name: str, operation: Callable[[], Awaitable[Any]]) -> Any:
        await pause(0)
        return await operation()


def test_sync_calls_do_what_async_ones_do(url: str) -> None:
    app = hw.App(url)

    @app.job(key="{n}")
    async def work(job: hw.Job, n: int) -> None: ...

    with app:
        one = app.send(work, n=1)
        again = app.send("work", n=1)
        many = app.send_many(work.make(n=n) for n in range(2_500))
        kept = app.signal("CA1", event="e1", final="succeeded", body={"x": 1})
    assert (one.created, again.id, again.created) == (True, one.id, False)
    assert [sent.created for sent in many].count(True) == 2_499
    assert many[1].id == one.id
    assert kept.answer == "kept"


def test_kind_without_options_is_declared_without_brackets(url: str) -> None:
    app = hw.App(url)

    @app.job
    def double(n: int) -> int:
        return n * 2

    with app:
        sent = app.send(double, n=21)
        app.run(until_idle=True)
        done = app.find(sent.id)
    assert done is not None
    assert (done.kind, done.result) == ("double", b"42")


def test_caller_without_a_loop_is_served_in_its_own_thread(url: str) -> None:
    with hw.App(url) as app:
        app.send("noop")
        app.send_many(app.kinds["noop"].make() for _ in range(3))
        assert app._background._thread is None


async def test_sync_call_inside_a_running_loop_is_served_in_the_background(url: str) -> None:
    app = hw.App(url)
    sent = app.send("noop")
    assert app._background._thread is not None
    view = await app.store.read(JobQuery(id=sent.id))
    app.close()
    assert view is not None


def test_many_threads_can_send_at_once(url: str) -> None:
    app = hw.App(url)

    @app.job()
    async def work(job: hw.Job, n: int) -> None: ...

    threads = [
        threading.Thread(target=lambda n=n: [app.send(work, n=n * 50 + k) for k in range(50)])
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = app._wait_for(app.store.read(StatsQuery()))
    app.close()
    assert stats.totals["enqueued"] == 400


def test_app_reopens_after_it_was_closed(tmp_path: Path) -> None:
    app = hw.App(f"sqlite:///{tmp_path}/jobs.db")

    @app.job(gates=[hw.Slots("x", 1)])
    async def work(job: hw.Job) -> None: ...

    one = app.open().send(work)
    app.close()
    two = app.send(work)
    found = [app._background.run(app.store.read(JobQuery(id=sent.id))) for sent in (one, two)]
    app.close()
    assert all(found)


def test_store_given_to_the_app_is_not_closed_by_it() -> None:
    with hw.App("memory://") as owner:
        app = hw.App(store=owner.store)
        sent = app.send("noop")
        app.close()
        assert app.store is owner.store
        assert owner._background.run(owner.store.read(JobQuery(id=sent.id)))


@pytest.mark.parametrize(
    "call",
    [
        lambda app: app.open(),
        lambda app: app.send("noop"),
        lambda app: app.send_many([app.kind("noop").make()]),
    ],
    ids=["open", "send", "send_many"],
)
@pytest.mark.filterwarnings("error")
def test_store_that_cannot_be_opened_leaves_no_coroutine_behind(
    tmp_path: Path, call: Callable[[hw.App], object]
) -> None:
    app = hw.App(f"sqlite:///{tmp_path}/nowhere/jobs.db")
    with pytest.raises(hw.HeadwayError):
        call(app)
    gc.collect()  # a coroutine that was never awaited is reported when it is collected


def test_environment_says_where_the_store_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEADWAY_STORE", f"sqlite:///{tmp_path}/from_env.db")
    with hw.App() as app:
        app.send("noop")
    assert (tmp_path / "from_env.db").exists()


def test_jobs_in_memory_remain_after_the_app_ran_and_was_closed() -> None:
    app = hw.App("memory://")

    @app.job()
    def double(n: int) -> int:
        return 2 * n

    sent = app.send(double, n=21)
    app.run(until_idle=True)
    with app:
        found = app.find(sent.id)
    assert found is not None
    assert found.result == b"42"


async def test_app_does_not_run_in_a_thread_with_a_running_loop() -> None:
    app = hw.App("memory://")
    with pytest.raises(hw.InvalidValue, match=r"use `await worker\(\.\.\.\)\.run\(\)` instead"):
        app.run(until_idle=True)


async def test_app_runs_only_in_the_main_thread() -> None:
    app = hw.App("memory://")
    with pytest.raises(hw.InvalidValue, match="only the main thread"):
        await asyncio.to_thread(app.run, until_idle=True)


@pytest.mark.parametrize("store", ["memory://", "sqlite:///{}/jobs.db"])
def test_app_cancels_waiting_jobs_and_requests_it_of_awaiting_ones(
    store: str, tmp_path: Path
) -> None:
    app = hw.App(store.format(tmp_path), name="shop")

    @app.job()
    async def charge(job: hw.Job) -> None:
        await job.hand_over()

    waits, awaits = app.send(charge, due="1h"), app.send(charge)
    app.run(until_idle=True)
    with app:
        assert app.cancel(waits.id, reason="called off") == "cancelled"
        assert app.why(waits.id).sentence.startswith("cancelled: called off")
        assert app.find(waits.id).trail[-1].author == "shop"
        assert app.cancel(awaits.id) == "awaiting"
        assert app.signal(f"{awaits.id}:1", event="e", final="succeeded").state == "cancelled"
        with pytest.raises(hw.InvalidState, match="it is cancelled") as refused:
            app.cancel(waits.id)
        assert str(refused.value).startswith("cancel does not apply to the job ")
        with pytest.raises(hw.UnknownJob, match="there is no job"):
            app.cancel("00000000-0000-7000-8000-000000000001")


def test_app_retries_dead_jobs_with_other_arguments() -> None:
    app = hw.App("memory://", name="shop")

    @app.job(retry=hw.Backoff(attempts=1))
    async def divide(by: int) -> float:
        return 1 / by

    sent = app.send(divide, by=0)
    app.run(until_idle=True)
    with pytest.raises(hw.InvalidValue, match="JSON"):
        app.retry(sent.id, args={"by": object()})
    assert app.retry(sent.id, reason="corrected", args={"by": 2}) == "waiting"
    with pytest.raises(hw.InvalidState, match="it is waiting"):
        app.retry(sent.id)
    app.run(until_idle=True)
    job = app.find(sent.id)
    assert (job.state, job.result, job.life) == ("succeeded", b"0.5", 2)
    assert (job.trail[-1].author, job.trail[-1].reason) == ("shop", "corrected")


def test_kind_is_still_a_function() -> None:
    app = hw.App("memory://")

    @app.job()
    def double(n: int) -> int:
        return 2 * n

    assert double(21) == 42


def test_final_of_a_signal_can_be_a_member_of_decided() -> None:
    with hw.App("memory://") as app:
        reply = app.signal("CA1", event="e", final=hw.Decided.DEAD)
        assert reply.answer is hw.SignalResult.KEPT
    # What a type checker reads.
    assert hw.Decided in get_args(get_type_hints(SignalOptions)["final"])


def test_signals_that_say_nothing_or_too_much_are_refused() -> None:
    with hw.App("memory://") as app:
        for options, text in [
            ({}, "a signal has no content"),
            ({"final": "succeeded", "note": "x"}, "has final and note"),
            ({"final": "exploded"}, "a signal's final is 'exploded'"),
            ({"final": "dead", "body": object()}, "the body is not JSON-serialisable"),
            ({"final": "dead", "body": {"sec": math.nan}}, "body is not JSON-serialisable: Out of"),
            ({"final": "succeeded", "extend": "5m"}, "has extend, but reports no progress"),
            ({"note": "x", "extend": "5m"}, "has extend, but reports no progress"),
            ({"progress": True, "after": "5m"}, "has after, but requests no retry"),
            ({"final": "dead", "after": 0}, "has after, but requests no retry"),
            ({"progress": True, "extend": "soon"}, "the duration 'soon' is not understood"),
            ({"final": "succeeded", "offer": "yes"}, "a signal's offer is 'yes'"),
            ({"final": "accepted", "candidate": 5}, "candidate must be text, not int"),
            ({"final": "succeeded", "known_as": "a\0"}, "contains NUL"),
            ({"end": 1}, "a signal has no option 'end'"),
        ]:
            with pytest.raises(hw.InvalidValue) as caught:
                app.signal("CA1", event="e", **options)
            assert text in str(caught.value)


def test_call_in_flight_when_another_thread_closes_has_an_unknown_outcome() -> None:
    background, begun = Background(), threading.Event()
    errors: list[BaseException] = []

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    def call() -> None:
        try:
            background.run(work())
        except hw.OutcomeUnknown as error:
            errors.append(error)

    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    assert begun.wait(120)
    background.close()
    caller.join(120)
    assert [str(error) for error in errors] == [
        "the app was closed by another thread before this ended (repeat the call)"
    ]


def test_iterator_of_jobs_runs_in_the_thread_of_its_caller() -> None:
    app = hw.App(store=Suspending(MemoryStore()))
    threads: set[int] = set()

    def jobs() -> Iterator[hw.NewJob]:
        for _ in range(MAX_BATCH + 1):
            threads.add(threading.get_ident())
            yield app.kinds["noop"].make()

    assert len(app.send_many(jobs())) == MAX_BATCH + 1
    assert threads == {threading.get_ident()}
    app.close()


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_exit_raised_by_an_iterator_of_jobs_reaches_only_its_caller(
    error: type[BaseException],
) -> None:
    app = hw.App(store=Suspending(MemoryStore()))

    def jobs() -> Iterator[hw.NewJob]:
        yield app.kinds["noop"].make()
        raise error

    with pytest.raises(error):
        app.send_many(jobs())
    assert app.send("noop").created
    app.close()


async def test_concurrent_jobs_after_the_store_was_lost_all_find_their_gates() -> None:
    store = Suspending(MemoryStore())
    app = hw.App(store=store)

    @app.job(gates=[hw.Slots("x", 1)])
    async def work(job: hw.Job) -> None: ...

    await app.send_async(work)
    store.inner = MemoryStore()
    sent = await asyncio.gather(*(app.send_async(work) for _ in range(5)))
    assert all(one.created for one in sent)


def test_everything_public_is_named_once_and_in_order() -> None:
    assert sorted(set(hw.__all__)) == hw.__all__
    assert all(hasattr(hw, name) for name in hw.__all__)


@pytest.mark.parametrize("lanes", ["calls:fast", "calls:", "calls,mail:-1", "a:2:b"])
def test_weight_of_a_lane_that_is_not_a_number_is_refused(lanes: str) -> None:
    with (
        hw.App("memory://") as app,
        pytest.raises(hw.InvalidValue, match=r"the weight of the lane .* is .*, not a number"),
    ):
        app.worker(lanes=lanes)


def test_lane_with_a_colon_can_have_a_weight() -> None:
    with hw.App("memory://") as app:
        assert app.worker(lanes="a:b:1,c").settings.lanes == (("a:b", 1), ("c", 1))
        assert app.worker(lanes=["a:b"]).settings.lanes == (("a:b", 1),)


def test_worker_serves_the_lanes_of_all_kinds_and_declared_ones() -> None:
    with hw.App("memory://") as app:
        assert app.lanes == ("main",)

        @app.job(lane="mail")
        async def send(job: hw.Job) -> None: ...

        app.lane("bulk", max_backlog=10)
        assert app.lanes == ("mail", "bulk")
        assert app.worker().settings.lanes == (("mail", 1), ("bulk", 1))


async def test_worker_of_an_unknown_lane_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = hw.App("memory://")

    @app.job(lane="calls")
    async def call() -> None: ...

    async with app:
        await app.send_async(call, lane="letters")
        before = app.worker(lanes="letters,cals,nosuch").settings.before
        assert before is not None
        await before()
        await app.worker(lanes="calls,letters").settings.before()
        await app.worker().settings.before()
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "worker serves an unknown lane: lane='cals'; did you mean calls?",
        "worker serves an unknown lane: lane='nosuch'",
    ]


@pytest.mark.parametrize("url", ["", " "])
def test_empty_url_does_not_select_the_default_store(url: str) -> None:
    with pytest.raises(hw.InvalidValue, match="the URL of an App is empty"):
        hw.App(url)


async def test_close_async_ends_the_thread_of_synchronous_calls() -> None:
    def threads() -> set[threading.Thread]:
        return {one for one in threading.enumerate() if one.name == "headway-background"}

    app, before = hw.App("memory://"), threads()
    app.send("noop")
    assert threads() - before
    await app.close_async()
    assert threads() == before
    async with hw.Client("http://127.0.0.1:1") as client:
        client.wait_for(pause(0))
        assert threads() - before
    assert threads() == before
