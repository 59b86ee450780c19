"""Sources: the application's own tables are authoritative; the store is reconciled with them."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import get_ident
from typing import Any

import pytest

import headway as hw
from headway.contract.signals import Decided, Signal, SignalResult
from headway.contract.views import GatesQuery, JobsQuery, StatsQuery
from headway.core.errors import BacklogFull, InvalidValue
from headway.core.job import MAX_BATCH
from headway.runtime.sources import REBUILD_LEASE_MS, SCAN_LEASE_MS, SourceSync
from headway.runtime.timing import pause
from headway.stores import open_store
from headway.testing.clock import FakeClock
from tests.runtime.observed_store import ObservedStore, soon, working

SINCE = datetime(2026, 11, 1, tzinfo=UTC)


@dataclass
class SourceTable:
    """The application's table: the phones to call, and the current calls."""

    pending: list[str] = field(default_factory=list)
    calling: dict[str, str] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    read: asyncio.Event | None = None
    looked_at: asyncio.Event = field(default_factory=asyncio.Event)
    called: asyncio.Event = field(default_factory=asyncio.Event)
    away: bool = False


def declare(app: hw.App, table: SourceTable, **options: object) -> hw.Source:
    lines = hw.Slots("lines", 2)

    @app.job(gates=[lines], key="{phone}")
    async def call(job: hw.Job, phone: str) -> None:
        table.calls.append(phone)
        table.called.set()
        await job.hand_over(f"call-{phone}")

    @app.source(**options)
    async def leads() -> AsyncIterator[hw.NewJob]:
        if table.away:
            message = "the table is away"
            raise OSError(message)
        for phone in table.pending:
            yield call.make(phone=phone)

    @leads.in_flight
    async def calls() -> AsyncIterator[object]:
        table.looked_at.set()
        if table.read is not None:
            await table.read.wait()
        if table.away:
            message = "the table is away"
            raise OSError(message)
        for phone, sid in table.calling.items():
            yield hw.in_flight(call.make(phone=phone), known_as=sid, since=SINCE, timeout="30m")

    return leads


async def looked(source: hw.Source, store: ObservedStore) -> None:
    async def there() -> bool:
        return source.last is not None

    await store.until(there)


async def test_missing_jobs_are_created_and_the_others_left_unchanged(
    app: hw.App, store: ObservedStore
) -> None:
    table = SourceTable(pending=["1", "2", "3"])
    leads = declare(app, table)
    there = await app.send_async("call", phone="2", due="2030-01-01T00:00Z", priority=7)
    async with working(app):
        await looked(leads, store)
    assert leads.last is not None
    assert (leads.last.rows, leads.last.missing) == (3, 2)
    jobs = (await store.read(JobsQuery(kind="call"))).rows
    assert sorted(job.key or "" for job in jobs) == ["1", "2", "3"]
    (old,) = [job for job in jobs if job.key == "2"]
    assert (old.id, old.priority) == (there.id, 7)


async def test_missing_job_that_is_not_due_yet_keeps_its_due_time(
    app: hw.App, store: ObservedStore
) -> None:
    @app.job(key="{number}")
    async def step(job: hw.Job, number: int) -> None: ...

    @app.source()
    async def steps() -> AsyncIterator[hw.NewJob]:
        yield step.make(number=1, due="2030-01-01T00:00Z")
        yield step.make(number=2)

    await app.scan_sources()
    jobs = {job.key: job for job in (await store.read(JobsQuery(kind="step"))).rows}
    later = int(datetime(2030, 1, 1, tzinfo=UTC).timestamp() * 1000)
    assert jobs["1"].due_at == later > jobs["2"].due_at


async def test_job_whose_row_has_changed_is_left_unchanged_and_the_others_created(
    app: hw.App, store: ObservedStore
) -> None:
    leads = declare(app, SourceTable(pending=["1", "2", "3"]))
    there = await app.send_async("call", phone="2", subject="old", due="2030-01-01T00:00Z")
    await app.scan_sources()
    assert leads.last is not None
    assert (leads.last.rows, leads.last.missing) == (3, 2)
    jobs = {job.key: job for job in (await store.read(JobsQuery(kind="call"))).rows}
    assert sorted(jobs) == ["1", "2", "3"]
    assert (jobs["2"].id, jobs["2"].subject) == (there.id, "old")


async def test_first_of_two_rows_with_one_key_and_different_bodies_gets_a_job(
    app: hw.App, store: ObservedStore, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job(key="same")
    async def step(job: hw.Job, number: int) -> None: ...

    @app.source()
    async def steps() -> AsyncIterator[hw.NewJob]:
        for number in (1, 2):
            yield step.make(number=number)

    await app.scan_sources()
    (job,) = (await store.read(JobsQuery(kind="step"))).rows
    assert job.args == b'{"number":1}'
    assert "'same'" in caplog.text


@pytest.mark.parametrize("newer", [False, True])
async def test_job_in_flight_whose_row_has_changed_is_the_one_that_the_store_knows(
    app: hw.App, store: ObservedStore, newer: bool
) -> None:
    leads = declare(app, SourceTable(calling={"1": "sid1", "2": "sid2"}))
    there = await app.send_async("call", phone="2", subject="old", due="2030-01-01T00:00Z")
    (page,) = [page async for page in leads.under_way()]
    await sync(app, leads)._restore(page, newer=newer)
    jobs = {job.key: job for job in (await store.read(JobsQuery(kind="call"))).rows}
    assert (jobs["1"].state, jobs["1"].in_doubt) == ("awaiting", True)
    assert (jobs["2"].id, jobs["2"].subject) == (there.id, "old")
    assert jobs["2"].state == ("awaiting" if newer else "scheduled")


async def test_jobs_in_flight_hold_their_permits_before_the_first_claim(
    app: hw.App, store: ObservedStore
) -> None:
    table = SourceTable(pending=["1", "2"], calling={"8": "sid8"})
    declare(app, table, rate=1_000_000)
    async with working(app):
        await soon(table.called)
        names = [name for name, _, _ in store.calls]
        assert names.index("restore") < names.index("claim")
        (gate,) = (await store.read(GatesQuery(names=("lines",)))).rows
        assert gate.holder_count == 2
        (job,) = (await store.read(JobsQuery(key="8", tenant=""))).rows
        assert (job.state, job.in_doubt) == ("awaiting", True)
        assert len(table.calls) == 1
        table.called.clear()
        reply = await app.signal_async("sid8", event="e", final="succeeded")
        assert (reply.answer, reply.job) == ("applied", job.id)
        await soon(table.called)
    assert "8" not in table.calls
    (gate,) = (await store.read(GatesQuery(names=("lines",)))).rows
    assert gate.used == 2


async def test_nothing_is_claimed_until_jobs_in_flight_are_known(
    app: hw.App,
    store: ObservedStore,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headway.runtime.sources.RETRY_AFTER", 0.01)
    caplog.set_level(logging.ERROR, "headway.sources")
    table = SourceTable(away=True)
    declare(app, table)
    worker = app.worker()
    task = asyncio.create_task(worker.run())
    await soon(table.looked_at)
    table.looked_at.clear()
    await soon(table.looked_at)
    assert "the table is away" in caplog.text
    worker.stop()
    async with asyncio.timeout(120):
        await task
    assert [request.n for request, _ in store.asked("claim")] == []


async def test_missing_jobs_are_spread_over_a_window_that_grows_with_their_number(
    app: hw.App, store: ObservedStore
) -> None:
    table = SourceTable(pending=["a"])
    leads = declare(app, table, rate=100)
    await app.declare()
    sync = SourceSync(store, [leads], app.declare, timing=hw.Timing(), name="tester")
    assert (await sync.scan(leads)).window_ms == 10
    table.pending = [f"n{number}" for number in range(2_400)]
    scan = await sync.scan(leads)
    assert (scan.rows, scan.missing, scan.window_ms) == (2_400, 2_400, 24_000)
    assert leads.last == scan
    dues: list[int] = []
    cursor = None
    while True:
        page = await store.read(JobsQuery(kind="call", limit=1000, cursor=cursor))
        dues += [job.due_at for job in page.rows if job.key != "a"]
        cursor = page.cursor
        if cursor is None:
            break
    # Drawn evenly, eight tenths of them fill eight tenths of the window, whenever it starts.
    dues.sort()
    spans = [dues[240 * (tenth + 1)] - dues[240 * tenth] for tenth in range(1, 9)]
    assert all(800 < span < 7_200 for span in spans), spans
    assert (await sync.scan(leads)).missing == 0


async def test_missing_jobs_that_expire_are_spread_over_half_of_the_time_until_then() -> None:
    clock = FakeClock()
    app = hw.App(store=open_store("memory://", clock=clock))

    @app.job()
    async def code(n: int) -> None: ...

    @app.source(rate=100)
    def codes() -> Iterator[hw.NewJob]:
        for n in range(2 * MAX_BATCH):
            yield code.make(n=n, key=f"n{n}").changed(expires_at=clock() + 8_000)

    await app.declare()
    assert (await sync(app, codes).scan(codes)).window_ms == 20_000
    query = JobsQuery(kind="code", limit=MAX_BATCH)
    first = await app.store.read(query)
    second = await app.store.read(replace(query, cursor=first.cursor))
    for page in (first, second):
        delays = sorted(job.due_at - clock() for job in page.rows)
        assert len(delays) == MAX_BATCH
        assert 0 <= delays[0] < 1_000
        assert 3_000 < delays[-1] <= 4_000


async def test_each_page_of_missing_jobs_has_its_own_part_of_the_window() -> None:
    clock = FakeClock()
    app = hw.App(store=open_store("memory://", clock=clock))
    pending = [f"n{number}" for number in range(2 * MAX_BATCH)]
    leads = declare(app, SourceTable(pending=pending), rate=100)
    await app.declare()
    assert (await sync(app, leads).scan(leads)).window_ms == 20_000
    first = JobsQuery(kind="call", limit=MAX_BATCH)
    page = await app.store.read(first)
    later = await app.store.read(replace(first, cursor=page.cursor))
    assert all(0 <= job.due_at - clock() < 10_000 for job in page.rows)
    assert all(10_000 <= job.due_at - clock() < 20_000 for job in later.rows)
    assert len(later.rows) == MAX_BATCH


async def test_scan_of_a_large_source_is_not_taken_over_while_it_gets_on() -> None:
    clock = FakeClock()
    app = hw.App(store=open_store("memory://", clock=clock))

    @app.job(key="{number}")
    async def step(job: hw.Job, number: int) -> None: ...

    @app.source()
    async def steps() -> AsyncIterator[hw.NewJob]:
        for number in range(2 * MAX_BATCH):
            if number % MAX_BATCH == 0:
                clock.advance(SCAN_LEASE_MS - 1)
            yield step.make(number=number)
        clock.advance(SCAN_LEASE_MS - 1)
        assert await app.store.lead("source:steps", "second", 1_000) is None

    await app.scan_sources()
    (source,) = app.sources.values()
    assert source.last is not None
    assert source.last.missing == 2 * MAX_BATCH


class Resting(hw.Timing):
    """Never ends a pause; `rests` is set when the first one begins."""

    def __init__(self) -> None:
        self.rests = asyncio.Event()

    async def pause(self, seconds: float) -> None:
        self.rests.set()
        await asyncio.Event().wait()


async def test_scanned_source_is_not_scanned_by_another_process_before_it_is_due_again() -> None:
    clock, timing = FakeClock(), Resting()
    app = hw.App(store=open_store("memory://", clock=clock))
    leads = declare(app, SourceTable(pending=["1"]), every="1m")
    await app.declare()
    first = SourceSync(app.store, [leads], app.declare, timing=timing, name="first")
    task = asyncio.create_task(first.run(leads))
    await soon(timing.rests)
    task.cancel()
    clock.advance(59_999)
    assert await app.store.lead("source:leads", "second", 1_000) is None
    clock.advance(1)
    assert await app.store.lead("source:leads", "second", 1_000) is not None


async def test_refused_job_holds_back_no_other_job_of_its_source(
    app: hw.App, store: ObservedStore
) -> None:
    names = {f"n{number}": "before" for number in range(MAX_BATCH + 10)}

    @app.job(lane="calls", key="{phone}")
    async def call(phone: str, name: str) -> None: ...

    @app.source()
    async def leads() -> AsyncIterator[hw.NewJob]:
        for phone, name in names.items():
            made = call.make(phone=phone, name=name)
            yield made.changed(priority=-1) if phone in {"n5", "n901"} else made

    await app.declare()
    sync = SourceSync(store, [leads], app.declare, timing=hw.Timing(), name="tester")
    for phone in ("n3", "n900"):
        await app.send_async(call, phone=phone, name="after")
    with pytest.raises(InvalidValue, match="priority"):
        await sync.scan(leads)
    assert leads.last is not None
    assert (leads.last.rows, leads.last.missing) == (len(names), len(names) - 4)


async def test_lane_that_is_full_gets_as_many_jobs_of_a_source_as_it_has_room_for(
    app: hw.App, store: ObservedStore
) -> None:
    @app.job(lane="calls", key="{n}")
    async def call(n: int) -> None: ...

    @app.source()
    async def leads() -> AsyncIterator[hw.NewJob]:
        for n in range(2 * MAX_BATCH):
            yield call.make(n=n)

    app.lane("calls", max_backlog=700)
    await app.declare()
    sync = SourceSync(store, [leads], app.declare, timing=hw.Timing(), name="tester")
    with pytest.raises(BacklogFull):
        await sync.scan(leads)
    assert leads.last is not None
    assert leads.last.missing == 700
    assert len(store.asked("enqueue")) < 30


async def test_job_without_a_key_is_refused_and_the_worker_continues(
    app: hw.App, store: ObservedStore
) -> None:
    @app.job()
    async def step() -> None: ...

    @app.source()
    async def steps() -> AsyncIterator[hw.NewJob]:
        yield step.make()

    async with working(app):
        await looked(steps, store)
        assert steps.last is not None
        assert "without a key" in steps.last.error
        sent = await app.send_async(step)
        await store.ends(sent.id)
    with pytest.raises(InvalidValue, match="without a key"):
        hw.in_flight(step.make(), known_as="x", since=SINCE, timeout="1m")


@pytest.mark.parametrize("at", ["its own wait", "a page that is made"])
async def test_open_source_is_closed_when_its_worker_has_ended(
    app: hw.App, store: ObservedStore, at: str
) -> None:
    begun, closed, enqueue = asyncio.Event(), list[str](), store.enqueue

    async def wait(*_: object) -> Any:
        begun.set()
        await asyncio.Event().wait()

    @app.source()
    async def leads() -> AsyncIterator[hw.NewJob]:
        try:
            if at == "its own wait":
                await wait()
            for n in range(MAX_BATCH + 1):
                yield app.kind("noop").make(key=f"{n}")
        finally:
            for _ in range(2000):  # because closing a connection takes more than one turn
                await pause(0)
            closed.append(at)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "enqueue", enqueue if at == "its own wait" else wait)
        async with working(app):
            await soon(begun)
    assert closed == [at]


class NewThreads(ThreadPoolExecutor):
    """Makes each call in another thread, as a pool with other work may."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        pool = ThreadPoolExecutor(1)
        future = pool.submit(fn, *args, **kwargs)
        pool.shutdown(wait=False)
        return future


async def test_blocking_source_is_read_to_its_end_and_closed_in_one_thread(app: hw.App) -> None:
    closed = asyncio.Event()
    threads: list[int] = []
    loop = asyncio.get_running_loop()

    @app.source()
    def leads() -> Iterator[hw.NewJob]:
        try:
            for n in range(3 * MAX_BATCH):
                threads.append(get_ident())
                yield app.kind("noop").make(key=f"{n}" if n < 2 * MAX_BATCH else None)
        finally:
            threads.append(get_ident())
            loop.call_soon_threadsafe(closed.set)

    loop.set_default_executor(NewThreads())
    with pytest.raises(InvalidValue, match="without a key"):
        await app.scan_sources()
    await soon(closed)
    assert len(threads) == 3 * MAX_BATCH + 1
    assert len(set(threads)) == 1


def test_source_without_brackets_is_one_without_options(app: hw.App) -> None:
    @app.source
    def leads() -> list[hw.NewJob]:
        return []

    assert app.sources == {"leads": leads}
    assert isinstance(leads, hw.Source)


async def test_two_sources_with_one_name_and_odd_options_are_refused(app: hw.App) -> None:
    declare(app, SourceTable())
    with pytest.raises(InvalidValue, match="two sources 'leads'"):
        app.source(name="leads")(list)
    with pytest.raises(InvalidValue, match="no option 'often'"):
        app.source(often=3)(list)  # type: ignore[call-arg]
    with pytest.raises(InvalidValue, match="every 10 ms"):
        app.source(name="quick", every="10ms")(list)


async def test_older_state_of_a_store_is_rebuilt_and_jobs_in_flight_not_dispatched_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "jobs.db"
    url = f"sqlite:///{path}"
    table = SourceTable()
    early = hw.App(url)
    declare(early, table)
    await early.send_async("call", phone="8", due="2030-01-01T00:00Z")
    await early.close_async()
    shutil.copy(path, tmp_path / "backup.db")
    store = ObservedStore(open_store(url))
    app = hw.App(store=store)
    declare(app, table, rate=1_000_000)
    table.pending = ["1"]
    worker = app.worker()
    task = asyncio.create_task(worker.run())
    await soon(table.called)
    first = worker.id
    # The disk is lost and an old backup restored; meanwhile 1 and 8 are on the phone.
    table.pending, table.calling = ["2", "3"], {"1": "sid1", "8": "sid8"}
    for end in ("-wal", "-shm"):
        (tmp_path / f"jobs.db{end}").unlink(missing_ok=True)
    os.replace(tmp_path / "backup.db", path)
    store.inner._writer.check_file()
    store.inner._wakes.wake_all()

    async def rebuilt() -> bool:
        jobs = (await store.read(JobsQuery(kind="call"))).rows
        return {job.key for job in jobs} == {"1", "2", "3", "8"} and worker.id != first

    await store.until(rebuilt)
    by_key = {job.key: job for job in (await store.read(JobsQuery(kind="call"))).rows}
    assert (by_key["1"].state, by_key["1"].in_doubt) == ("awaiting", True)
    assert (by_key["8"].state, by_key["8"].in_doubt) == ("awaiting", True)
    worker.stop()
    async with asyncio.timeout(120):
        await task
    assert table.calls.count("1") == 1
    assert "8" not in table.calls
    await store.close()


async def test_store_that_is_lost_during_a_scan_is_rebuilt_and_scanned_again_at_once(
    tmp_path: Path,
) -> None:
    clock, timing, path = FakeClock(), Resting(), tmp_path / "jobs.db"
    await open_store(f"sqlite:///{path}", clock=clock).close()
    shutil.copy(path, tmp_path / "backup.db")
    store: Any = open_store(f"sqlite:///{path}", clock=clock)
    app = hw.App(store=store)

    @app.job(key="{number}", gates=[hw.Slots("line", 1)])
    async def step(job: hw.Job, number: int) -> None: ...

    @app.source()
    async def steps() -> AsyncIterator[hw.NewJob]:
        if (backup := tmp_path / "backup.db").exists():
            for end in ("-wal", "-shm"):
                (tmp_path / f"jobs.db{end}").unlink(missing_ok=True)
            os.replace(backup, path)
            store._writer.check_file()
        yield step.make(number=1)

    clock.advance(1)
    await app.send_async("step", number=2)
    (source,) = app.sources.values()
    again = app._declare_again
    process = SourceSync(store, [source], again, timing=timing, name="tester")
    task = asyncio.create_task(process.run(source))
    await soon(timing.rests)
    assert source.last is not None
    assert (source.last.missing, source.last.error) == (1, "")
    task.cancel()
    await store.close()


async def test_process_suspended_in_a_rebuild_leaves_a_store_alone_that_another_has_rebuilt(
    tmp_path: Path,
) -> None:
    clock, path = FakeClock(), tmp_path / "jobs.db"
    early = hw.App(store=open_store(f"sqlite:///{path}", clock=clock))
    declare(early, SourceTable())
    await early.send_async("call", phone="8", due="2030-01-01T00:00Z")
    await early.store.close()
    shutil.copy(path, tmp_path / "backup.db")
    first_store = ObservedStore(open_store(f"sqlite:///{path}", clock=clock))
    first, first_table = hw.App(store=first_store), SourceTable(calling={"1": "sid1"})
    source = declare(first, first_table)
    clock.advance(1)
    await first.send_async("call", phone="9", due="2030-01-01T00:00Z")
    for end in ("-wal", "-shm"):
        (tmp_path / f"jobs.db{end}").unlink(missing_ok=True)
    os.replace(tmp_path / "backup.db", path)
    first_store.inner._writer.check_file()
    first_table.read = asyncio.Event()
    task = asyncio.create_task(sync(first, source).rebuild())
    await soon(first_table.looked_at)
    # The first process is suspended until its leadership has ended, and the second one rebuilds.
    clock.advance(REBUILD_LEASE_MS)
    second_store = open_store(f"sqlite:///{path}", clock=clock)
    second = hw.App(store=second_store)
    await sync(second, declare(second, SourceTable(calling={"1": "sid1"}))).rebuild()
    epoch = (await second_store.read(StatsQuery())).epoch
    # The call ends, and its job is to be repeated.
    ended = Signal(key="sid1", event="ended", decided=Decided.RETRY, after_ms=60_000)
    assert (await second_store.signal(ended)).answer is SignalResult.APPLIED
    first_table.read.set()
    await task
    (job,) = [one for one in (await first_store.read(JobsQuery())).rows if one.key == "1"]
    assert job.state == "scheduled"
    assert (await first_store.read(StatsQuery())).epoch == epoch
    await first_store.close()
    await second_store.close()


def sync(app: hw.App, source: hw.Source) -> SourceSync:
    return SourceSync(app.store, [source], app.declare, timing=hw.Timing(), name="tester")
