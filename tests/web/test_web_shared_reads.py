"""What is computed from several reads: rates, charts, and the rate at which a gate frees slots."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headway.contract.definitions import CloseGate, DefineRequest, LaneSpec
from headway.contract.outcomes import Failed, SettleRequest
from headway.contract.store import Store
from headway.contract.views import (
    FlowsQuery,
    GatesQuery,
    GateState,
    HolderView,
    JobsQuery,
    LaneView,
    Page,
    StatsView,
)
from headway.runtime.timing import REAL
from headway.server.finding import oldest_or_newest_jobs
from headway.server.overview import Overview, read_overview
from headway.stores import open_store
from headway.testing.clock import FakeClock
from headway.testing.jobs import JobFactory
from headway.web.rendering import bars, line, meter, shares
from headway.web.shared_reads import (
    FRESH_S,
    GateTrack,
    Lateness,
    OverviewHistory,
    SharedReads,
)
from headway.web.stuck import ALIKE, find_stuck
from tests.plain_jobs import claim, job
from tests.web.test_web_live import Counted


def gate(*jobs: str) -> GateState:
    holders = tuple(
        HolderView(gate="lines", job=one, run=1, member="", amount=1, since=0) for one in jobs
    )
    return GateState(
        name="lines",
        kind="slots",
        shared=True,
        template="lines",
        capacity=2,
        per_ms=None,
        used=len(jobs),
        free=2 - len(jobs),
        open=len(jobs) < 2,
        opens_at=None,
        closed_until=None,
        closed_by="",
        closed_reason="",
        overridden=False,
        holders=holders,
        holder_count=len(jobs),
    )


def overview(now: int, *, succeeded: int, ended: int = 0) -> Overview:
    stats = StatsView(
        now=now,
        counts={},
        totals={"succeeded": succeeded},
        identity="i",
        epoch=1,
        revision=1,
        clock_ahead_ms=0,
    )
    lane = LaneView(
        name="calls",
        spec=LaneSpec(name="calls"),
        overridden=False,
        counts={"succeeded": ended},
        workers=0,
        oldest_due_at=None,
        paused=False,
    )
    return Overview(stats=stats, lanes=(lane,), gates=(), more_gates=False, workers=())


def test_rate_is_unknown_after_one_read_and_then_covers_the_last_ten_seconds():
    history = OverviewHistory()
    assert history.rate("succeeded") is None
    history.note(overview(0, succeeded=1_000))
    assert history.rate("succeeded") is None
    for _ in range(2):
        history.note(overview(20_000, succeeded=3_000))
        assert history.rate("succeeded") == 100
    history.note(overview(25_000, succeeded=3_000))
    assert history.rate("succeeded") == 0
    assert history.rate("another") == 0


def test_chart_has_a_gap_where_no_browser_watched():
    history = OverviewHistory()
    for second in (*range(11), *range(30, 41)):
        history.note(overview(second * 1_000, succeeded=second * 7))
    steps = history.steps("succeeded", most=8)
    assert steps == [None, 7, 7, None, None, None, None, 7]


def test_forgotten_jobs_do_not_count_against_ended_ones():
    history = OverviewHistory()
    for now, ended in ((0, 100), (1_000, 110), (2_000, 20), (10_000, 30)):
        history.note(overview(now, succeeded=0, ended=ended))
    assert history.finished_rate("calls") == 2


def test_time_without_a_browser_counts_for_no_rate():
    history, hour = OverviewHistory(), 3_600_000
    history.note(overview(0, succeeded=0, ended=0))
    history.note(overview(hour, succeeded=7_200, ended=7_200))
    assert history.rate("succeeded") is None
    assert history.finished_rate("calls") is None
    history.note(overview(hour + 1_000, succeeded=7_205, ended=7_205))
    assert history.rate("succeeded") == 5
    assert history.finished_rate("calls") == 5
    track = GateTrack()
    for second, jobs in ((0, "ab"), (1, "bc"), (2, "cd"), (3, "de"), (3_600, "pq"), (3_601, "qr")):
        track.note(gate(*jobs), second * 1_000)
    assert track.each_ms is None


def test_gate_next_has_room_after_the_mean_of_the_last_times_and_is_never_late():
    track = GateTrack()
    for now, jobs in ((0, "ab"), (10_000, "bc"), (30_000, "cd"), (50_000, "de")):
        track.note(gate(*jobs), now)
    assert track.each_ms == 20_000
    assert track.next_free_at(55_000) == 70_000
    assert track.next_free_at(90_000) == 91_000


def test_gate_that_often_has_room_shows_its_rate_and_a_briefly_seen_one_nothing():
    track = GateTrack()
    for now, jobs in ((0, "ab"), (200, "bc"), (400, "cd")):
        track.note(gate(*jobs), now)
    assert track.each_ms is None
    track.note(gate("d", "e"), 600)
    assert track.each_ms == 200
    assert track.next_free_at(700) is None


async def test_read_that_began_before_an_action_is_not_cached():
    store = open_store("memory://")
    shared = SharedReads(store, REAL)
    reads, may_end = 0, asyncio.Event()

    async def read() -> int:
        nonlocal reads
        reads += 1
        await may_end.wait()
        return reads

    before = asyncio.create_task(shared.cached("x", read, 60))
    while not reads:
        await REAL.pause(0)
    shared.expire()
    may_end.set()
    assert await before == 1
    assert await shared.cached("x", read, 60) == 2
    assert await shared.cached("x", read, 60) == 2
    await store.close()


async def test_slow_read_is_cached_longer_except_for_the_freshest_data():
    clock, calls = SimpleNamespace(at=0.0), Counter[str]()
    reads = SharedReads(cast("Any", None), cast("Any", SimpleNamespace(monotonic=lambda: clock.at)))

    async def read_at(name: str, at: float, *, took: float, fresh_s: float) -> int:
        async def read() -> int:
            clock.at += took
            calls[name] += 1
            return calls[name]

        clock.at = at
        return await reads.cached(name, read, fresh_s)

    assert await read_at("short", 0, took=0.01, fresh_s=2.0) == 1
    assert await read_at("short", 1.9, took=0.01, fresh_s=2.0) == 1
    assert await read_at("short", 2.1, took=0.01, fresh_s=2.0) == 2
    # Five hundredths of a second are one percent of five seconds.
    assert await read_at("long", 10, took=0.05, fresh_s=2.0) == 1
    assert await read_at("long", 15, took=0.05, fresh_s=2.0) == 1
    assert await read_at("long", 15.1, took=0.05, fresh_s=2.0) == 2
    assert await read_at("longest", 20, took=60, fresh_s=2.0) == 1
    assert await read_at("longest", 89.9, took=60, fresh_s=2.0) == 1
    assert await read_at("longest", 90.1, took=60, fresh_s=2.0) == 2
    assert await read_at("live", 200, took=0.5, fresh_s=FRESH_S) == 1
    assert await read_at("live", 201.4, took=0.5, fresh_s=FRESH_S) == 2
    reads.expire()
    assert await read_at("long", 201.5, took=0.05, fresh_s=2.0) == 3


async def test_lateness_is_that_of_first_starts_since_the_job_was_due_and_existed():
    clock = FakeClock()
    store = open_store("memory://", clock=clock)
    hour = 3_600_000
    await store.enqueue([job(1, due_at=clock() - hour), job(2, due_at=clock() + 1_000)])
    clock.advance(100)
    (late,) = (await claim(store, request=1)).jobs
    again = Failed(late.id, late.run, error="busy", after_ms=0)
    await store.settle(SettleRequest(worker="w", outcomes=(again,)))
    clock.advance(1_200)
    assert len((await claim(store, request=2)).jobs) == 2
    found = await SharedReads(store, REAL).lateness()
    assert found == Lateness(starts=2, p50_ms=100, p99_ms=300)
    await store.close()


def test_use_is_recorded_of_a_bounded_number_of_gates_that_are_in_use(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("headway.web.shared_reads.GATES_KEPT", 2)
    history = OverviewHistory()
    gates = (gate(), *(replace(gate("a"), name=name) for name in ("one", "two", "three")))
    for now in (1_000, 2_000):
        history.note(replace(overview(now, succeeded=0), gates=gates))
    assert {name: len(one.used) for name, one in history.gates.items()} == {"one": 2, "two": 2}


class Listing:
    """A store whose listings from the oldest find nothing, as behind many ended jobs."""

    def __init__(self, *newest: str, more_gates: bool = False) -> None:
        self._newest = newest
        self._more_gates = more_gates

    async def read(self, query: Any) -> Any:
        if isinstance(query, GatesQuery) and query.parked:
            return Page(rows=(), cursor="on" if self._more_gates else None)
        if isinstance(query, GatesQuery):
            return Page(rows=(replace(gate(), name="all", closed_until=None),), cursor=None)
        if isinstance(query, FlowsQuery) or not query.newest:
            return Page(rows=(), cursor="on")
        return Page(rows=self._newest, cursor="on")


async def test_jobs_behind_many_ended_ones_are_found_from_the_other_end():
    query = JobsQuery(lane="calls", limit=25)
    assert await oldest_or_newest_jobs(cast("Any", Listing("a", "b")), query) == ("a", "b")


async def test_parked_jobs_that_are_not_found_are_still_counted():
    seen = overview(10_000, succeeded=0)
    lane = replace(seen.lanes[0], counts={"parked": 590}, oldest_due_at=1_000)
    seen = replace(seen, lanes=(lane,))
    (cause,) = (await find_stuck(cast("Any", Listing(more_gates=True)), seen)).causes
    assert (cause.kind, cause.count, cause.lane) == ("unknown", 590, "calls")
    # All gates were read: the jobs have moved on since they were counted.
    assert (await find_stuck(cast("Any", Listing()), seen)).causes == ()


async def test_jobs_that_moved_on_since_they_were_counted_are_not_blocked():
    seen = overview(10_000, succeeded=0)
    lane = replace(seen.lanes[0], counts={"waiting": 2}, oldest_due_at=1_000)
    stuck = await find_stuck(cast("Any", Listing()), replace(seen, lanes=(lane,)))
    assert stuck.causes == ()


async def test_two_of_many_equal_lines_are_explained_and_the_rest_only_if_these_differ():
    inner = open_store("memory://")
    store = Counted(inner)
    jobs = JobFactory(FakeClock())
    for n, tenant in enumerate("abcd"):
        await inner.enqueue([jobs.make(lane="calls", tenant=tenant) for _ in range(9 - n)])
    seen = await read_overview(inner)
    (cause,) = (await find_stuck(cast("Store", store), seen)).causes
    assert (cause.kind, cause.count, cause.about) == ("no_worker", 30, True)
    assert store.reads["WhyQuery"] == ALIKE
    closed = CloseGate(name="tenant:b")
    await inner.define(DefineRequest(items=(closed,), author="ada"))
    found = await find_stuck(cast("Store", store), seen)
    assert {one.kind: one.count for one in found.causes} == {"no_worker": 22, "closed": 8}
    assert store.reads["WhyQuery"] == ALIKE + 4
    await inner.close()


def test_charts_are_markup_whose_labels_are_text():
    evil = '"><script>'
    made = [
        meter(1, 2, evil),
        meter(1, None, evil),
        shares([("waiting", 0), ("running", 0)], evil),
        bars([("good", [None, 1.0]), ("bad", [2.0, None])], evil),
        bars([], evil),
        line([(0, 1), (5, 0)], evil, span=(0, 10), top=0),
        line([], evil, span=(0, 0), top=1),
    ]
    for one in made:
        assert "<script" not in one
        assert "style" not in one
        assert one.startswith("<svg")
