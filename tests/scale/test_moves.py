"""One row is written when an operator or the clock changes what a million waiting jobs may do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headway import Hours, Slots
from headway.contract.definitions import CloseGate, Item, OpenGate, SetGate
from tests.scale.large_store import HOUR_MS, LANE, large_store

FEW_AND_MANY = [
    pytest.param(5_000),
    pytest.param(250_000, marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
]
MOVES: list[Callable[[str], Item]] = [
    lambda gate: CloseGate(name=gate),
    lambda gate: OpenGate(name=gate),
    lambda gate: CloseGate(name=gate, until_at=1_900_000_000_000),
    lambda gate: OpenGate(name=gate),
    lambda gate: SetGate(name=gate, capacity=5),
    lambda gate: SetGate(name=gate, capacity=50),
]


@pytest.mark.parametrize("waiting", FEW_AND_MANY)
async def test_pausing_and_resuming_write_at_most_ten_rows(path: Path, waiting: int) -> None:
    async with large_store(path) as c:
        (line,) = await c.declare(Slots("line", 10))
        await c.add(waiting, [line])
        for gate in ("line", f"lane:{LANE}", "kind:dial", "tenant:", "all"):
            for move in MOVES:
                with c.meter.reading() as read:
                    await c.define(move(gate))
                assert read.rows <= 10, (gate, move(gate))
                assert read.scanned == 0
            with c.meter.reading() as read:
                await c.define(CloseGate(name=gate))
                assert await c.take(10) == []
                await c.define(OpenGate(name=gate))
            assert read.rows <= 10
            started = await c.take(5)
            assert len(started) == 5, gate
            await c.finish(started)
        assert await c.audit() == []


@pytest.mark.parametrize("waiting", FEW_AND_MANY)
async def test_hours_that_open_and_close_write_at_most_ten_rows(path: Path, waiting: int) -> None:
    # The fake clock starts on a Thursday at midnight.
    async with large_store(path) as c:
        (hours,) = await c.declare(Hours("office", "09:00-18:00", days="mon-fri", tz="UTC"))
        await c.add(waiting, [hours])
        assert await c.take(10) == []
        for to_open, to_close in ((9, 9), (15, 9)):
            c.clock.advance(to_open * HOUR_MS)
            await c.worker.beat()
            with c.meter.reading() as opening:
                await c.store.sweep(1_000)
                first = await c.take(1)
            with c.meter.reading() as usual:
                second = await c.take(1)
            assert len(first) == len(second) == 1
            assert opening.rows <= usual.rows + 10
            await c.finish([*first, *second])
            c.clock.advance(to_close * HOUR_MS)
            await c.worker.beat()
            with c.meter.reading() as closing:
                assert await c.take(10) == []
                await c.store.sweep(1_000)
            assert closing.rows <= 10
            assert opening.scanned == usual.scanned == closing.scanned == 0
        assert (await c.counts())["waiting"] == waiting - 4
