from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

import headway as hw
from headway.runtime.timing import Timing
from headway.systems.calls.migrations import SCHEMAS
from headway.systems.calls.overview import CountedEvent
from headway.systems.directory.database import Directory
from headway.systems.directory.tally import FLUSH_DELAY_S, MOST_LABELS, OTHER, Tally

TABLE = "calls_tally"


class Held(Timing):
    """Pauses end when the test allows it."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self.go = asyncio.Event()
        self.paused = asyncio.Event()

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.paused.set()
        await self.go.wait()
        self.go.clear()


@pytest.fixture
async def directory(tmp_path: Path) -> AsyncIterator[Directory]:
    made = Directory(f"sqlite:///{tmp_path}/directory.db")
    made.needs(*SCHEMAS)
    await made.open()
    yield made
    await made.close()


async def test_counts_of_several_processes_are_added_up(directory: Directory):
    one, other = Tally(directory, Held(), TABLE), Tally(directory, Held(), TABLE)
    one.happened(CountedEvent.OUTCOME, "BUSY", 2)
    other.happened(CountedEvent.OUTCOME, "BUSY")
    other.happened(CountedEvent.OUTCOME, "COMPLETED")
    await one.close()
    await other.close()
    expected = {("outcome", "BUSY"): 3, ("outcome", "COMPLETED"): 1}
    assert await Tally(directory, Held(), TABLE).totals() == expected


async def test_pending_counts_are_visible_at_once_and_written_later(directory: Directory):
    timing = Held()
    tally, other = Tally(directory, timing, TABLE), Tally(directory, Held(), TABLE)
    tally.happened(CountedEvent.WEBHOOK_LOST, "+15550001")
    await timing.paused.wait()
    assert timing.pauses == [FLUSH_DELAY_S]
    assert await other.totals() == {}
    timing.go.set()
    flushing = tally._flushing
    assert flushing is not None
    async with asyncio.timeout(120):
        await flushing
    assert await other.totals() == {("webhook_lost", "+15550001"): 1}


async def test_counts_during_a_write_are_written_next(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
):
    tally, change = Tally(directory, Held(), TABLE), directory.change
    meanwhile = ["BUSY", "COMPLETED"]

    @asynccontextmanager
    async def slow() -> AsyncIterator[AsyncSession]:
        async with change() as session:
            yield session
            while meanwhile:
                tally.happened(CountedEvent.OUTCOME, meanwhile.pop())

    monkeypatch.setattr(directory, "change", slow)
    tally.happened(CountedEvent.OUTCOME, "BUSY")
    await tally.flush()
    await tally.flush()
    expected = {("outcome", "BUSY"): 2, ("outcome", "COMPLETED"): 1}
    assert await Tally(directory, Held(), TABLE).totals() == expected
    await tally.close()


async def test_unreachable_directory_loses_no_count_and_is_retried(
    directory: Directory, caplog: pytest.LogCaptureFixture
):
    timing = Held()
    tally = Tally(directory, timing, TABLE)
    tally.happened(CountedEvent.OUTCOME, "BUSY")
    assert await tally.totals() == {("outcome", "BUSY"): 1}
    await directory.close()
    tally.happened(CountedEvent.OUTCOME, "BUSY", 4)
    with pytest.raises(hw.StoreUnavailable):
        await tally.flush()
    assert tally.away == ""
    # As last read, plus what has arrived since.
    assert await tally.totals() == {("outcome", "BUSY"): 5}
    assert tally.away
    await directory.open()
    assert await tally.totals() == {("outcome", "BUSY"): 5}
    assert tally.away == ""
    assert await Tally(directory, Held(), TABLE).totals() == {("outcome", "BUSY"): 5}


async def test_never_read_directory_is_reported_unreachable(directory: Directory):
    tally = Tally(directory, Held(), TABLE)
    await directory.close()
    with pytest.raises(hw.StoreUnavailable):
        await tally.totals()


async def test_failing_flush_warns_once_and_continues(
    directory: Directory, caplog: pytest.LogCaptureFixture
):
    timing = Held()
    tally = Tally(directory, timing, TABLE)
    await directory.close()
    tally.happened(CountedEvent.OUTCOME, "BUSY")
    async with asyncio.timeout(120):
        for _ in range(3):
            await timing.paused.wait()
            timing.paused.clear()
            timing.go.set()
        await timing.paused.wait()
        assert caplog.text.count("tally not written") == 1
        await directory.open()
        timing.go.set()
        assert tally._flushing is not None
        await tally._flushing
    assert await Tally(directory, Held(), TABLE).totals() == {("outcome", "BUSY"): 1}


async def test_labels_are_bounded_in_number_and_length(directory: Directory):
    tally = Tally(directory, Held(), TABLE)
    for number in range(MOST_LABELS + 10):
        tally.happened(CountedEvent.WEBHOOK_ORPHAN, f"{number}-{'x' * 100}")
    totals = await tally.totals()
    assert len(totals) == MOST_LABELS + 1
    assert totals["webhook_orphan", OTHER] == 10
    assert max(len(label) for _, label in totals) == 64
    await tally.close()


def test_counts_outside_of_any_loop_are_included(tmp_path: Path):
    directory = Directory(f"sqlite:///{tmp_path}/directory.db")
    directory.needs(*SCHEMAS)
    tally = Tally(directory, Timing(), TABLE)
    tally.happened(CountedEvent.OUTCOME, "BUSY")

    async def counted() -> object:
        await directory.open()
        try:
            return await tally.totals()
        finally:
            await directory.close()

    assert asyncio.run(counted()) == {("outcome", "BUSY"): 1}
