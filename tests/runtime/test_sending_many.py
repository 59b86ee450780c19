"""Jobs are sent in batches, in order: the next batch is created while one is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

import pytest

import headway as hw
from headway.contract.store import Sent
from headway.contract.views import StatsQuery
from headway.core.errors import StoreUnavailable
from headway.runtime.timing import pause
from headway.stores import open_store
from headway.testing.faulty import StoreProxy

Reply = TypeVar("Reply")

LIMIT_S = 60


class Watched(StoreProxy):
    """Takes many iterations of the loop to store a batch, and may refuse one.

    Args:
        made: returns how many jobs have been created so far.
        refused: the number of the batch to refuse, from 1.
    """

    def __init__(self, made: Callable[[], int], refused: int = 0) -> None:
        super().__init__(open_store("memory://"))
        self.made, self.refused = made, refused
        self.steps = self.storing = self.together = 0
        self.made_meanwhile: list[int] = []

    async def _call(self, name: str, operation: Callable[[], Awaitable[Reply]]) -> Reply:
        if name != "enqueue":
            return await operation()
        self.steps += 1
        self.storing += 1
        self.together = max(self.together, self.storing)
        step, before = self.steps, self.made()
        for _ in range(200):
            await pause(0)
        self.storing -= 1
        self.made_meanwhile.append(self.made() - before)
        if step == self.refused:
            message = "the disk is full"
            raise StoreUnavailable(message)
        return await operation()


class Ahead(Watched):
    """Works for many iterations of the loop before it says that a batch is sent, on a thread.

    Args:
        says: whether it says so at all.
    """

    def __init__(self, made: Callable[[], int], *, says: bool) -> None:
        super().__init__(made)
        self.says = says
        self.made_before, self.made_by_the_end = list[int](), list[int]()

    async def enqueue_ahead(
        self, jobs: Sequence[hw.NewJob], sent: Callable[[], None]
    ) -> list[Sent]:
        before = self.made()
        for _ in range(200):
            await pause(0)
        self.made_before.append(self.made() - before)
        if self.says:
            await asyncio.to_thread(sent)
            sent()
        reply = await self.enqueue(jobs)
        self.made_by_the_end.append(self.made() - before)
        return reply


class Sender:
    """Sends numbered jobs, and fails to create them at a given number."""

    def __init__(self, count: int, *, fails_at: int | None = None, refused: int = 0) -> None:
        self.made = 0
        self.count, self.fails_at = count, fails_at
        self.store = Watched(lambda: self.made, refused)
        self.app = hw.App(store=self.store)

    def jobs(self) -> Iterator[hw.NewJob]:
        kind = self.app.kind("noop")
        for n in range(self.count):
            if n == self.fails_at:
                message = "no row"
                raise LookupError(message)
            self.made += 1
            yield kind.make(n=n)

    async def stored(self) -> int:
        return (await self.store.read(StatsQuery())).totals.get("enqueued", 0)


async def test_each_job_has_its_reply_in_its_place() -> None:
    sender = Sender(2_350)
    jobs = list(sender.jobs())
    sent = await sender.app.send_many_async(jobs)
    assert sent == [Sent(job.id, created=True) for job in jobs]
    assert (await sender.app.send_many_async(jobs[:1_001]))[-1] == Sent(
        jobs[1_000].id, created=False
    )
    assert await sender.app.send_many_async([]) == []


async def test_step_is_made_while_the_previous_one_is_stored() -> None:
    sender = Sender(4_500)
    await sender.app.send_many_async(sender.jobs())
    assert sender.store.made_meanwhile == [1_000, 1_000, 1_000, 500, 0]


@pytest.mark.parametrize("says", [True, False])
async def test_no_job_is_made_before_the_previous_step_is_sent(says: bool) -> None:
    sender = Sender(3_500)
    store = Ahead(lambda: sender.made, says=says)
    sender.app = hw.App(store=store)
    sent = await sender.app.send_many_async(sender.jobs())
    assert (len(sent), len(set(sent)), sender.made) == (3_500, 3_500, 3_500)
    assert store.made_before == [0, 0, 0]
    assert store.made_by_the_end == ([1_000, 1_000, 500] if says else [0, 0, 0])


async def test_steps_are_stored_one_after_another() -> None:
    sender = Sender(4_500)
    await sender.app.send_many_async(sender.jobs())
    assert (sender.store.steps, sender.store.together) == (5, 1)


@pytest.mark.parametrize(("fails_at", "stored"), [(0, 0), (999, 0), (1_000, 1_000), (2_999, 2_000)])
async def test_steps_before_a_failure_to_make_a_job_are_stored(fails_at: int, stored: int) -> None:
    sender = Sender(4_500, fails_at=fails_at)
    with pytest.raises(LookupError, match="no row"):
        await sender.app.send_many_async(sender.jobs())
    assert (await sender.stored(), sender.store.storing) == (stored, 0)


async def test_no_step_is_sent_after_a_refused_one() -> None:
    sender = Sender(4_500, refused=2)
    with pytest.raises(StoreUnavailable, match="the disk is full"):
        await sender.app.send_many_async(sender.jobs())
    assert (await sender.stored(), sender.store.steps) == (1_000, 2)


class Stuck(Watched):
    """Never finishes storing a batch; records when it started and when it was cancelled."""

    def __init__(self) -> None:
        super().__init__(lambda: 0)
        self.begun, self.cancelled = asyncio.Event(), asyncio.Event()

    async def _call(self, name: str, operation: Callable[[], Awaitable[Reply]]) -> Reply:
        if name != "enqueue":
            return await operation()
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return await operation()


@pytest.mark.parametrize("count", [100_000, 1_000])
async def test_cancelled_call_does_not_wait_for_the_store(count: int) -> None:
    # While jobs are created, and while the last batch is awaited.
    store = Stuck()
    app = hw.App(store=store)
    jobs = (app.kind("noop").make(n=n) for n in range(count))
    sending = asyncio.create_task(app.send_many_async(jobs))
    await asyncio.wait_for(store.begun.wait(), LIMIT_S)
    sending.cancel()
    await asyncio.wait([sending], timeout=LIMIT_S)
    assert sending.cancelled()
    await asyncio.wait_for(store.cancelled.wait(), LIMIT_S)


async def test_other_tasks_of_the_loop_run_while_jobs_are_made() -> None:
    sender = Sender(1_000)
    seen: set[int] = set()

    async def watch() -> None:
        while True:
            seen.add(sender.made)
            await pause(0)

    watcher = asyncio.create_task(watch())
    await sender.app.send_many_async(sender.jobs())
    watcher.cancel()
    assert {100, 500, 900} <= seen


async def test_step_wakes_each_lane_when_its_jobs_are_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = hw.App("memory://")

    @app.job(cascade=True)
    async def offer(job: hw.Job) -> None: ...

    noop = app.kind("noop")
    woken: list[tuple[str | None, int | None]] = []
    wakes = cast("Any", app.store)._wakes
    monkeypatch.setattr(wakes, "wake", woken.extend)
    moments = [datetime(2090, 1, day, tzinfo=UTC) for day in (3, 1, 2)]
    await app.send_many_async(
        [
            noop.make(lane="a", due=moments[0]),
            noop.make(lane="b", due=moments[1]),
            noop.make(lane="a", due=moments[2]),
            noop.make(lane="a", due=moments[0]),
            noop.make(lane="now"),
            # Dead immediately: there is no candidate left.
            offer.make(lane="dead", candidates=[]),
        ]
    )
    first, second, third = (int(one.timestamp() * 1_000) for one in moments)
    assert sorted(woken, key=str) == sorted(
        [("a", first), ("a", third), ("b", second), ("now", None)], key=str
    )
