"""Races: many workers at once, in one event loop and in several threads."""

from __future__ import annotations

import asyncio
from collections import Counter

from headway.contract.outcomes import Failed, Succeeded, Verdict
from headway.contract.views import AuditQuery
from headway.core.gates.pool import Pool
from headway.core.gates.slots import Slots
from headway.core.state import State
from headway.testing.conformance.base import ConformanceGroup
from headway.testing.conformance.rig import Rig
from headway.testing.conformance.worker import PlayedWorker
from headway.testing.dump import differences
from headway.testing.jobs import use_of

LINE = Slots("line", 3)
REPO = Slots("repo:{url}", 1)
NUMBERS = Pool("numbers", {"a": 1, "b": 2})
JOBS = 60


async def fill(rig: Rig) -> list[str]:
    """Jobs that meet at locks, pools and slots; their ids."""
    await rig.declare(LINE, REPO, NUMBERS)
    jobs = [
        rig.jobs.make(
            gates=((use_of(LINE),), (use_of(REPO, url=n % 4),), (use_of(NUMBERS),), ())[n % 4]
        )
        for n in range(JOBS)
    ]
    await rig.enqueue(*jobs)
    return [job.id for job in jobs]


async def drain(rig: Rig, worker: PlayedWorker, done: Counter[str]) -> None:
    """Claims and settles until all jobs are done.

    Raises:
        AssertionError: a thousand claims did not suffice.
    """
    for _ in range(1_000):
        runs = await worker.take(3)
        for run in runs:
            assert await worker.say(Succeeded(run.id, run.run)) is Verdict.DONE
            done[run.id] += 1
        if done.total() >= JOBS:
            return
        assert await differences(rig.store) == []
    message = "a thousand claims did not suffice"
    raise AssertionError(message)


def drain_in_a_loop(rig: Rig, worker: PlayedWorker, done: Counter[str]) -> None:
    """As `drain`, in an event loop of its own."""
    asyncio.run(drain(rig, worker, done))


class RaceGroup(ConformanceGroup):
    """Operations that overlap, each one step."""

    async def test_workers_that_race_do_each_job_once(self, rig: Rig) -> None:
        ids = await fill(rig)
        done = Counter[str]()
        await asyncio.gather(*(drain(rig, rig.new_worker(), done) for _ in range(5)))
        assert done == Counter(ids)

    async def test_operation_may_be_awaited_from_any_loop_in_any_thread(self, rig: Rig) -> None:
        ids = await fill(rig)
        done = Counter[str]()
        workers = [rig.new_worker() for _ in range(3)]
        await asyncio.gather(
            *(asyncio.to_thread(drain_in_a_loop, rig, worker, done) for worker in workers)
        )
        assert done == Counter(ids)

    async def test_settlements_of_one_run_that_race_are_written_once(self, rig: Rig) -> None:
        await rig.declare(LINE)
        job = await rig.add(gates=(use_of(LINE),))
        run = await rig.worker.take_one()
        outcomes = [Succeeded(run.id, run.run), Failed(run.id, run.run)] * 5
        verdicts = await asyncio.gather(*(rig.worker.say(outcome) for outcome in outcomes))
        assert Counter(verdicts) == {Verdict.DONE: 1, Verdict.ALREADY: 9}
        assert await rig.state(job.id) in {State.SUCCEEDED, State.SCHEDULED}
        assert await rig.used("line") == 0

    async def test_sweepers_that_race_do_each_thing_once(self, rig: Rig) -> None:
        await rig.add_many(20)
        await rig.worker.take(20)
        rig.clock.advance(60_000)
        replies = await asyncio.gather(*(rig.store.sweep(100) for _ in range(5)))
        assert sum(reply.lost for reply in replies) == 20
        assert await rig.total("lost") == 20

    async def test_audit_is_read_in_pages_that_cover_everything_once(self, rig: Rig) -> None:
        await fill(rig)
        runs = await rig.worker.take(30)
        cursor: str | None = None
        held = permits = pages = 0
        while True:
            page = await rig.store.read(AuditQuery(cursor=cursor, limit=2))
            assert page.differences == ()
            held, permits, pages = held + page.held, permits + page.permits, pages + 1
            cursor = page.cursor
            if cursor is None:
                break
        assert held == len(runs)
        assert permits == sum(run.gated for run in runs)
        assert pages > 1
