from __future__ import annotations

import asyncio

import pytest

from headway.core.errors import InvariantBroken
from headway.lab.virtual_time import VirtualLoop, run_virtually
from headway.runtime.timing import pause

START_AT = 1_358_245_800_000


def test_day_of_pauses_ends_at_the_exact_millisecond() -> None:
    async def main(loop: VirtualLoop) -> int:
        for _ in range(24 * 60):
            await pause(60)
        for ms in range(100):
            await pause(ms / 1000)
        return loop.clock()

    assert run_virtually(main, START_AT) == START_AT + 86_400_000 + 4_950


def test_timers_fire_in_order_and_never_early() -> None:
    async def main(loop: VirtualLoop) -> list[tuple[int, int]]:
        fired: list[tuple[int, int]] = []
        spans = [700, 1, 333, 10_001, 86_400_000, 333, 2]
        for ms in spans:
            loop.call_later(ms / 1000, lambda ms=ms: fired.append((ms, loop.passed_ms)))
        await pause(90_000)
        return fired

    fired = run_virtually(main, START_AT)
    assert fired == [(ms, ms) for ms in (1, 2, 333, 333, 700, 10_001, 86_400_000)]


def test_less_than_a_millisecond_is_rounded_up_to_one() -> None:
    async def main(loop: VirtualLoop) -> int:
        await pause(0.0001)
        return loop.passed_ms

    assert run_virtually(main, START_AT) == 1


def test_timeout_is_reached_in_virtual_time() -> None:
    async def main(loop: VirtualLoop) -> int:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await asyncio.Event().wait()
        return loop.passed_ms

    assert run_virtually(main, START_AT) == 3_600_000


def test_waiting_for_the_impossible_is_an_error_and_no_hang() -> None:
    async def main(_: VirtualLoop) -> None:
        await asyncio.Event().wait()

    with pytest.raises(InvariantBroken, match="can no longer happen"):
        run_virtually(main, START_AT)


def test_thread_is_refused() -> None:
    async def main(_: VirtualLoop) -> None:
        await asyncio.to_thread(int)

    with pytest.raises(InvariantBroken, match="thread"):
        run_virtually(main, START_AT)
