"""Concurrent calls are answered in batches: each by exactly one that starts after the call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from headway.runtime.timing import REAL
from headway.systems.notifications.batches import Batches


class Work:
    """Answers numbers with their doubles; each batch runs when the test releases it."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.free = asyncio.Semaphore(0)
        self.fails = False

    async def __call__(self, asked: Sequence[int]) -> Sequence[int]:
        self.batches.append(list(asked))
        await self.free.acquire()
        if self.fails:
            message = "away"
            raise RuntimeError(message)
        return [2 * one for one in asked]


async def begun(work: Work, batches: int) -> None:
    async with asyncio.timeout(60):
        while len(work.batches) < batches:
            await REAL.pause(0)


async def test_call_during_a_batch_is_answered_by_the_next() -> None:
    work = Work()
    batches = Batches(work, 3)
    calls = [asyncio.create_task(batches.ask(1))]
    await begun(work, 1)
    calls += [asyncio.create_task(batches.ask(n)) for n in (2, 3, 4, 5)]
    await REAL.pause(0)
    for _ in range(3):
        work.free.release()
    assert await asyncio.gather(*calls) == [2, 4, 6, 8, 10]
    assert work.batches == [[1], [2, 3, 4], [5]]


async def test_error_of_a_batch_reaches_each_of_its_calls_and_no_other() -> None:
    work = Work()
    batches = Batches(work, 2)
    work.fails = True
    calls = [asyncio.create_task(batches.ask(n)) for n in (1, 2, 3)]
    await begun(work, 1)
    work.free.release()
    await begun(work, 2)
    work.fails = False
    work.free.release()
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert [str(one) for one in found] == ["away", "away", "6"]


@pytest.mark.parametrize("fails", [False, True])
async def test_cancelled_caller_takes_nothing_from_the_others(*, fails: bool) -> None:
    work = Work()
    work.fails = fails
    batches = Batches(work, 2)
    gone, stays = (asyncio.create_task(batches.ask(n)) for n in (1, 2))
    await begun(work, 1)
    gone.cancel()
    work.free.release()
    async with asyncio.timeout(60):
        (found,) = await asyncio.gather(stays, return_exceptions=True)
    assert str(found) == ("away" if fails else "4")
    with pytest.raises(asyncio.CancelledError):
        await gone
