"""A program queries its jobs, waits for their results, and works off what can start now."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from uuid import uuid4

import pytest

import headway as hw
from headway.contract.store import Store
from headway.runtime.timing import Timing
from headway.stores.memory import MemoryStore
from headway.testing.clock import FakeClock
from headway.testing.faulty import StoreProxy
from tests.runtime.observed_store import LIMIT

MINUTE_MS = 60_000
Reply = TypeVar("Reply")


class Leaping(Timing):
    """A clock that advances only during pauses, in which a test can make something happen."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self.seconds

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.seconds += seconds


def declare(app: hw.App) -> hw.Kind:
    @app.job(retry=hw.Backoff(attempts=1))
    async def double(n: int) -> int:
        if n < 0:
            raise hw.Dead("below zero")
        return 2 * n

    return double


async def test_ended_job_is_returned_with_its_result(url: str) -> None:
    app = hw.App(url)
    double = declare(app)
    async with app:
        sent, bad = await app.send_many_async([double.make(n=21), double.make(n=-1)])
        await app.worker(until_idle=True).run()
        done, dead = await app.wait_async(sent.id), await app.wait_async(bad.id)
        found = await app.find_async(sent.id)
    assert done is not None
    assert dead is not None
    assert (done.state, json.loads(done.result or b"")) == (hw.State.SUCCEEDED, 42)
    assert (dead.state, dead.reason) == (hw.State.DEAD, "below zero")
    assert found == done


def test_synchronous_callers_can_find_and_wait(url: str) -> None:
    with hw.App(url) as app:
        sent = app.send(declare(app), n=1)
        found, why = app.find(sent.id), app.why(sent.id)
        assert app.wait(sent.id, within="0s") is None
        assert app.find(str(uuid4())) is app.why(str(uuid4())) is None
    assert found is not None
    assert found.state is hw.State.WAITING
    assert why is not None
    assert why.sentence == "ready: 1st in its flow; no live worker serves lane main"


async def test_wait_times_out_and_checks_less_and_less_often() -> None:
    timing = Leaping()
    app = hw.App(store=MemoryStore(), timing=timing)
    sent = await app.send_async(declare(app), n=1)
    assert await app.wait_async(sent.id, within="10s") is None
    assert timing.seconds == pytest.approx(10)
    assert timing.pauses[:2] == [0.02, 0.03]
    assert max(timing.pauses) == 0.5


async def test_wait_for_an_unknown_job_is_refused() -> None:
    app = hw.App(store=MemoryStore())
    with pytest.raises(hw.UnknownJob, match="there is no job 'nothing'"):
        await app.wait_async("nothing")


async def test_worker_until_idle_does_what_can_start_and_leaves_the_rest() -> None:
    clock = FakeClock()
    app = hw.App(store=MemoryStore(clock))
    app.lane("narrow", concurrency=1)
    seen: list[str] = []

    @app.job(gates=[hw.Rate("each:{who}", 1, per="1h")])
    async def greet(job: hw.Job, who: str) -> None:
        seen.append(who)
        if who == "ada":
            job.then(after.make(who=who))

    @app.job(lane="narrow", retry=hw.Backoff(attempts=2, base="0s"))
    async def after(job: hw.Job, who: str) -> None:
        if job.attempt == 1:
            raise ConnectionError
        seen.append(f"after {who}")

    @app.job(lane="narrow")
    async def dial(job: hw.Job, who: str) -> None:
        await job.hand_over()
        seen.append(f"dial {who}")

    @app.job(retry=hw.Backoff(attempts=2, base="1m", jitter="none"))
    def fail() -> None:
        raise ConnectionError

    now = await app.send_async(greet, who="ada")
    full = await app.send_async(greet, who="ada", priority=600)
    calls = [await app.send_async(dial, who=who) for who in ("bob", "cleo")]
    again = await app.send_async(fail)
    await app.worker(until_idle=True).run()

    states = {one: await app.find_async(one.id) for one in (now, full, *calls, again)}
    assert sorted(seen) == ["ada", "after ada", "dial bob", "dial cleo"]
    assert [one and one.state.value for one in states.values()] == [
        "succeeded",
        "parked",
        "awaiting",
        "awaiting",
        "scheduled",
    ]
    clock.advance(MINUTE_MS)
    await app.worker(until_idle=True).run()
    view = await app.find_async(again.id)
    assert view is not None
    assert view.state is hw.State.DEAD


class SlowSettle(StoreProxy):
    """Settles only once a claim that began later has been answered."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.settling, self.claimed = False, asyncio.Event()

    async def _call(self, name: str, operation: Callable[[], Awaitable[Reply]]) -> Reply:
        settling = self.settling
        if name == "settle":
            self.settling = True
            await self.claimed.wait()
        reply = await operation()
        if name == "claim" and settling:
            self.claimed.set()
        return reply


async def test_worker_until_idle_awaits_its_outcomes_whose_follow_ups_can_start() -> None:
    app = hw.App(store=SlowSettle(MemoryStore()))
    double = declare(app)
    follow_up = double.make(n=21)

    @app.job()
    async def first(job: hw.Job) -> None:
        job.then(follow_up)

    await app.send_async(first)
    # Otherwise the store would wait for a claim of a worker that has stopped.
    async with asyncio.timeout(LIMIT):
        await app.worker(until_idle=True).run()
    done = await app.find_async(follow_up.id)
    assert done is not None
    assert done.result == b"42"


async def test_worker_until_idle_without_work_exits(url: str) -> None:
    async with hw.App(url) as app:
        await app.worker(until_idle=True).run()


def test_version_is_the_package_s() -> None:
    assert hw.__version__ == "0.1.0"


async def test_app_can_be_given_one_store_after_another_by_tests() -> None:
    app = hw.App()
    double = declare(app)
    for _ in range(2):
        app.use(MemoryStore())
        sent = await app.send_async(double, n=3)
        await app.worker(until_idle=True).run()
        done = await app.find_async(sent.id)
        assert done is not None
        assert done.result == b"6"
        assert done.seq == 1


async def test_app_with_its_own_store_uses_no_other() -> None:
    app = hw.App(store=MemoryStore())
    with pytest.raises(hw.InvalidValue, match="has already opened its store"):
        app.use(MemoryStore())


async def test_jobs_are_listed_by_kind_and_state(url: str) -> None:
    app = hw.App(url)
    double = declare(app)

    @app.job()
    async def other() -> None: ...

    async with app:
        good, bad = await app.send_many_async([double.make(n=21), double.make(n=-1)])
        await app.send_async(other, due="1h")
        await app.worker(until_idle=True).run()
        ended = await app.jobs_async(kind=double, states=(hw.State.SUCCEEDED, hw.State.DEAD))
        first = await app.jobs_async(kind="double", limit=1)
        rest = await app.jobs_async(kind="double", limit=1, cursor=first.cursor)
    assert [job.id for job in ended.rows] == [good.id, bad.id]
    assert [job.id for job in first.rows + rest.rows] == [good.id, bad.id]


def test_jobs_are_listed_without_an_event_loop() -> None:
    app = hw.App("memory://")
    double = declare(app)
    with app:
        sent = app.send(double, n=1, subject="a")
        app.send(double, n=2, subject="b")
        assert [job.id for job in app.jobs(subject="a").rows] == [sent.id]


@pytest.mark.parametrize(
    ("name", "value"),
    [("states", "dead"), ("states", ("ded",)), ("states", None), ("limit", "a"), ("kind", 3)],
)
def test_filter_with_an_invalid_value_is_refused(name: str, value: object) -> None:
    given: Any = {name: value}
    with hw.App("memory://") as app, pytest.raises(hw.InvalidValue, match=rf"`\$\.{name}"):
        app.jobs(**given)


def test_unknown_filter_is_refused() -> None:
    unknown: Any = {"state": "dead"}
    with hw.App("memory://") as app, pytest.raises(hw.InvalidValue, match="did you mean states"):
        app.jobs(**unknown)
