"""A worker's chores: transitions driven by time alone, and timetable fires created in advance."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from statistics import mean
from typing import Any

import pytest

import headway as hw
from headway.contract.claims import BeatRequest, ClaimRequest
from headway.contract.definitions import DefineRequest, EnableEntry, FireReply, FireRequest
from headway.contract.store import Store
from headway.contract.views import JobsQuery, TimetableQuery
from headway.core.errors import StoreUnavailable
from headway.core.job import MAX_BATCH, NewJob
from headway.runtime.chores import (
    AT_ONCE,
    LONGEST_REST,
    MOST_SHARING,
    Sweep,
    Sweepers,
    TimetableChore,
)
from headway.runtime.timing import Timing, pause
from headway.stores import open_store
from headway.testing.clock import START_AT, FakeClock
from headway.testing.faulty import Fault, FaultyStore, StoreProxy
from headway.testing.jobs import JobFactory
from tests.runtime.observed_store import ObservedStore, working

MINUTE = 60_000
HOUR = 60 * MINUTE


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def still(url: str, clock: FakeClock) -> AsyncIterator[Store]:
    """Return a store whose clock does not advance."""
    store = open_store(url, clock=clock)
    yield store
    await store.close()


@pytest.fixture
def timed(still: Store) -> hw.App:
    return hw.App(store=still)


async def fires(store: Store) -> list[str]:
    page = await store.read(JobsQuery(limit=1000))
    moments = sorted(row.fired_at for row in page.rows if row.fired_at is not None)
    return [datetime.fromtimestamp(at / 1000, UTC).strftime("%d %H:%M") for at in moments]


async def create_fires(store: Store) -> int:
    return await TimetableChore(store, Timing()).create_fires()


def declare(app: hw.App, schedule: str, **options: Any) -> None:
    @app.job()
    async def work(job: hw.Job, n: int = 7) -> None: ...

    app.timetable("entry", work, schedule=schedule, **options)


async def test_fires_of_the_next_minutes_and_one_beyond_are_stored(
    timed: hw.App, still: Store, clock: FakeClock
) -> None:
    declare(timed, "every 5m", args={"n": 9, "priority": 3})
    await timed.declare()
    assert await create_fires(still) == 5
    assert await fires(still) == ["01 00:05", "01 00:10", "01 00:15", "01 00:20", "01 00:25"]
    (row, *_) = (await still.read(JobsQuery())).rows
    assert (row.kind, row.args, row.priority, row.entry) == ("work", b'{"n":9}', 3, "entry")
    assert await create_fires(still) == 0
    clock.advance(5 * MINUTE)
    assert await create_fires(still) == 1
    assert (await fires(still))[-1] == "01 00:30"


async def test_fire_in_the_far_future_is_stored(timed: hw.App, still: Store) -> None:
    declare(timed, "cron: 0 3 * * *", tz="Europe/Berlin")
    await timed.declare()
    assert await create_fires(still) == 1
    assert await fires(still) == ["01 02:00"]
    assert await create_fires(still) == 0


@pytest.mark.parametrize(
    ("misfire", "made_up"),
    [
        ("skip", []),
        ("once", ["01 09:00"]),
        ("all", ["01 06:00", "01 07:00", "01 08:00", "01 09:00"]),
    ],
)
async def test_fires_missed_in_an_outage_are_caught_up_by_policy(
    timed: hw.App, still: Store, clock: FakeClock, misfire: str, made_up: list[str]
) -> None:
    declare(timed, "cron: 0 * * * *", misfire=misfire, misfire_cap=4, overlap="all")
    await timed.declare()
    await create_fires(still)
    assert await fires(still) == ["01 01:00"]
    clock.advance(9 * HOUR + 10 * MINUTE)
    await create_fires(still)
    assert [at for at in await fires(still) if at != "01 01:00"] == [*made_up, "01 10:00"]


@pytest.mark.parametrize("misfire", ["skip", "once", "all"])
async def test_fire_due_between_a_declaration_and_the_next_round_is_not_missed(
    timed: hw.App, still: Store, clock: FakeClock, misfire: str
) -> None:
    clock.advance(HOUR - 10_000)
    # A process declares it that only sends; a worker's next round is up to 30 seconds later.
    declare(timed, "cron: 0 * * * *", misfire=misfire)
    await timed.declare()
    clock.advance(20_000)
    await create_fires(still)
    assert await fires(still) == ["01 01:00", "01 02:00"]
    await still.sweep(MAX_BATCH)
    clock.advance(HOUR - 20_000)
    changed = hw.App(store=still)
    declare(changed, "cron: 0 * * * *", misfire=misfire, args={"n": 9})
    await changed.declare()
    clock.advance(20_000)
    await create_fires(still)
    rows = (await still.read(JobsQuery())).rows
    (job,) = [row for row in rows if row.args == b'{"n":9}' and row.due_at <= clock()]
    assert job.fired_at == START_AT + 2 * HOUR


async def test_fires_missed_in_a_short_outage_are_caught_up(
    timed: hw.App, still: Store, clock: FakeClock
) -> None:
    declare(timed, "every 5m", misfire="all", overlap="all")
    await timed.declare()
    await create_fires(still)
    before = await fires(still)
    assert before[-1] == "01 00:25"
    clock.advance(40 * MINUTE)
    await create_fires(still)
    late = [at for at in await fires(still) if at not in before]
    assert late == ["01 00:30", "01 00:35", "01 00:40", *late[3:]]
    assert late[-1] == "01 01:05"


async def test_fires_that_did_not_reach_the_store_are_stored_in_the_next_round(
    timed: hw.App, still: Store
) -> None:
    declare(timed, "every 1s")
    await timed.declare()
    faulty = FaultyStore(still)
    faulty.plan(Fault.REFUSE, operation="fire", nth=2)
    with pytest.raises(StoreUnavailable):
        await create_fires(faulty)
    assert await create_fires(still) == 20 * 60 + 1 - MAX_BATCH
    assert await create_fires(still) == 0


class Gathered(StoreProxy):
    """Passes on the calls for fires only when all of one batch have been made."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.barrier = asyncio.Barrier(AT_ONCE)

    async def fire(self, request: FireRequest) -> FireReply:
        async with asyncio.timeout(60):
            await self.barrier.wait()
        return await super().fire(request)


async def test_store_gets_the_fires_of_many_entries_at_once(timed: hw.App, still: Store) -> None:
    @timed.job()
    async def work(job: hw.Job) -> None: ...

    for n in range(2 * AT_ONCE):
        timed.timetable(f"entry {n}", work, schedule="every 30m")
    await timed.declare()
    chore = TimetableChore(Gathered(still), Timing())
    assert await chore.create_fires() == 2 * AT_ONCE
    assert await create_fires(still) == 0


async def test_disabled_entry_stores_nothing(timed: hw.App, still: Store) -> None:
    declare(timed, "every 5m")
    await timed.declare()
    await still.define(DefineRequest(items=(EnableEntry(name="entry", enabled=False),), author="a"))
    assert await create_fires(still) == 0
    await still.define(DefineRequest(items=(EnableEntry(name="entry", enabled=True),), author="a"))
    assert await create_fires(still) > 0


async def test_second_scheduler_stores_nothing_twice(timed: hw.App, still: Store) -> None:
    declare(timed, "every 1m")
    await timed.declare()
    (entry,) = await still.read(TimetableQuery())
    chores = [TimetableChore(still, Timing()) for _ in range(2)]
    laid = [
        await chores[0]._create_entry_fires(entry, START_AT),
        await chores[1]._create_entry_fires(entry, START_AT),
    ]
    assert laid == [21, 0]
    assert len(await fires(still)) == 21


async def test_worker_stores_fires_and_runs_them_when_due(
    app: hw.App, store: ObservedStore
) -> None:
    @app.job()
    async def tick(job: hw.Job) -> None: ...

    app.timetable("ticks", tick, schedule="every 1s")
    async with working(app):

        async def ticked() -> bool:
            page = await store.read(JobsQuery(states=(hw.State.SUCCEEDED,)))
            return bool(page.rows)

        await store.until(ticked)
    (row, *_) = (await store.read(JobsQuery(states=(hw.State.SUCCEEDED,)))).rows
    assert row.fired_at == row.due_at
    assert row.fired_at % 1000 == 0


async def test_entry_that_cannot_fire_is_logged_and_the_others_fire(
    app: hw.App, store: ObservedStore, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job(gates=[hw.Slots("phone:{phone}", 1)])
    async def call(job: hw.Job, phone: str) -> None: ...

    @app.job()
    async def tick(job: hw.Job) -> None: ...

    app.timetable("calls", call, schedule="every 1s", args={"phone": "7"})
    app.timetable("ticks", tick, schedule="every 1s")
    await app.declare()
    # From now on, the resolved name of its gate is that of another declared gate.
    await app.declare_gates(hw.Slots("phone:7", 1))
    async with working(app):

        async def ticked() -> bool:
            return bool((await store.read(JobsQuery(states=(hw.State.SUCCEEDED,)))).rows)

        await store.until(ticked)
    jobs = (await store.read(JobsQuery())).rows
    assert {job.kind for job in jobs} == {"tick"}
    assert "timetable entry 'calls' cannot fire" in caplog.text


async def test_worker_sweeps_up_after_a_dead_one(app: hw.App, store: ObservedStore) -> None:
    @app.job(retry=hw.Backoff(attempts=2, base="1ms", cap="1ms"))
    async def work(job: hw.Job) -> int:
        return job.attempt

    sent = await app.send_async(work)
    lost = await store.claim(
        ClaimRequest(worker="dead", request=1, lanes=(("main", 1),), lease_ms=20)
    )
    assert [job.id for job in lost.jobs] == [sent.id]
    async with working(app):
        view = await store.ends(sent.id)
    assert [run.outcome for run in view.runs] == ["lost", "succeeded"]
    assert view.result == b"2"


async def test_jobs_of_a_claim_that_finds_an_expired_one_are_started(
    app: hw.App, store: ObservedStore
) -> None:
    @app.job()
    async def plain(number: int) -> int:
        return number

    sent = await app.send_many_async(plain.make(number=n) for n in range(6))
    await store.enqueue(
        [NewJob(id="01890000-0000-7000-8000-000000000001", kind="plain", expires_at=1)]
    )
    # Its first claim finds them, because no sweep runs before it.
    async with working(app, chores=False):
        views = [await store.ends(one.id) for one in sent]
    assert [view.run for view in views] == [1] * 6
    assert sum(len(reply.dead) for _, reply in store.asked("claim")) == 1


async def test_worker_ends_expired_jobs(timed: hw.App, still: Store, clock: FakeClock) -> None:
    made = NewJob(
        id="01890000-0000-7000-8000-000000000001",
        kind="noop",
        lane="nobody serves this",
        expires_at=START_AT + MINUTE,
    )
    await still.enqueue([made])
    clock.advance(2 * MINUTE)
    watched = ObservedStore(still)
    async with working(hw.App(store=watched), lanes="main"):
        view = await watched.ends(made.id)
    assert (view.state, view.reason) == ("dead", "expired")


class Rests(Timing):
    """A clock that advances only during pauses, and cancels the task after the last one."""

    def __init__(self, rests: int) -> None:
        self.left = rests
        self.rests: list[float] = []

    def monotonic(self) -> float:
        return sum(self.rests)

    async def pause(self, seconds: float) -> None:
        self.rests.append(seconds)
        if len(self.rests) == self.left:
            raise asyncio.CancelledError


class Asked:
    """A real store that records which operations its chore called."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.names: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.names.append(name)
        return getattr(self.store, name)


async def test_sweep_logs_the_jobs_that_become_dead(
    still: Store,
    clock: FakeClock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("headway.runtime.chores.DEAD_LOGGED", 2)
    make = JobFactory(clock)
    jobs = make.many(3, kind="greet", expires_at=clock() + 1_000)
    await still.enqueue(jobs)
    clock.advance(1_000)
    with pytest.raises(asyncio.CancelledError):
        await Sweep(still, Rests(1)).run()
    lines = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    first, second, _ = sorted(job.id for job in jobs)
    assert lines == [
        f"job dead kind=greet id={first} attempt=0 error='expired'",
        f"job dead kind=greet id={second} attempt=0 error='expired'",
        "1 more jobs dead, not listed",
    ]


async def test_sweeps_query_the_time_again_only_when_something_is_due_soon(still: Store):
    asked: Any = Asked(still)
    lease = BeatRequest(worker="w", name="", lanes=("lane",), running=(), lease_ms=10_000)
    await still.beat(lease)
    timing = Rests(6)
    with pytest.raises(asyncio.CancelledError):
        await Sweep(asked, timing).run()
    # The store's clock does not advance, so the sweep takes it to be 8 s ahead of its real value.
    assert asked.names == ["sweep", "read", *(3 * ["sweep"]), "sweep", "read", "sweep"]
    assert timing.rests == [LONGEST_REST] * 6


@pytest.mark.parametrize(
    ("workers", "shares", "least", "most"),
    [
        (1, True, LONGEST_REST, LONGEST_REST),
        (2, True, LONGEST_REST, LONGEST_REST),
        (3, True, 2.0, 3.0),
        (20, True, 5.5, 8.0),
        (20, False, LONGEST_REST, LONGEST_REST),
    ],
)
async def test_each_of_several_workers_sweeps_less_often(
    still: Store, workers: int, shares: bool, least: float, most: float
):
    for n in range(workers):
        await still.beat(
            BeatRequest(worker=f"w{n}", name="", lanes=("lane",), running=(), lease_ms=36_000_000)
        )
    random.seed(7)
    timing = Rests(300)
    with pytest.raises(asyncio.CancelledError):
        await Sweep(still, timing, sweepers=Sweepers() if shares else None).run()
    assert least <= mean(timing.rests) <= most
    assert max(timing.rests) <= max(LONGEST_REST, 2 * min(workers, MOST_SHARING))
    # They do not stay in step although they start together.
    assert (len(set(timing.rests)) > 200) == (least < most)


async def test_one_worker_of_an_app_sweeps_for_all_and_the_next_takes_over(still: Store):
    for n in range(20):
        await still.beat(
            BeatRequest(worker=f"w{n}", name="", lanes=("lane",), running=(), lease_ms=36_000_000)
        )
    random.seed(7)
    sweepers = Sweepers()
    asked: list[Any] = [Asked(still) for _ in range(5)]
    timings = [Rests(300) for _ in asked]
    async with sweepers.turn():
        sweeps = [
            asyncio.ensure_future(Sweep(one, timing, sweepers=sweepers).run())
            for one, timing in zip(asked, timings, strict=True)
        ]
        for _ in range(5):
            await pause(0)
        assert not any(one.names for one in asked)
        # A worker that exits while on standby neither sweeps nor counts.
        sweeps[1].cancel()
        await asyncio.wait(sweeps[1:2])
    ended = await asyncio.gather(*sweeps, return_exceptions=True)
    assert [type(one) for one in ended] == [asyncio.CancelledError] * 5
    assert not asked[1].names
    # Each rests for its process: with four of the twenty here, as one of five. The last is alone.
    assert 3.5 <= mean(timings[0].rests) <= 5
    assert 5.5 <= mean(timings[4].rests) <= 8


async def test_worker_that_shares_sweeps_sleeps_at_most_until_the_next_due_time(
    still: Store,
):
    for n in range(9):
        await still.beat(
            BeatRequest(worker=f"w{n}", name="", lanes=("lane",), running=(), lease_ms=3_000)
        )
    timing = Rests(100)
    with pytest.raises(asyncio.CancelledError):
        await Sweep(still, timing, sweepers=Sweepers()).run()
    # The store's clock does not advance, so the next due time is always equally far off.
    assert max(timing.rests) == 3.0
