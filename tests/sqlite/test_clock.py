"""A process whose clock differs from that of the machine with the file writes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from headway.contract.claims import BeatRequest
from headway.contract.outcomes import Verdict
from headway.contract.views import StatsQuery
from headway.core.errors import ClockSkewed
from headway.stores.sql.statement import HIGH_WATER
from headway.stores.sqlite import SqliteStore, timing
from headway.stores.sqlite.timing import CLOCK_LIMIT_MS, skew_ms, system_clock
from headway.testing.clock import FakeClock
from tests.plain_jobs import claim, count, job, succeed
from tests.sqlite.rig import number, options

HOUR_MS = 3_600_000


@pytest.fixture
async def right(path: Path) -> AsyncIterator[SqliteStore]:
    """Return a store that uses the machine's clock."""
    opened = SqliteStore(options(path))
    yield opened
    await opened.close()


class OwnClock:
    """The clock of another process; it is right until a test moves it."""

    off_ms = 0

    def __call__(self) -> int:
        return system_clock() + self.off_ms


@pytest.fixture
def own() -> OwnClock:
    return OwnClock()


@pytest.fixture
async def other(right: SqliteStore, path: Path, own: OwnClock) -> AsyncIterator[SqliteStore]:
    """Open the same file as another process would."""
    opened = SqliteStore(options(path), own)
    yield opened
    await opened.close()


Write = Callable[[SqliteStore], Awaitable[object]]
WRITES: dict[str, Write] = {
    "enqueue": lambda store: store.enqueue([job(9)]),
    "claim": lambda store: claim(store, worker="skewed"),
    "beat": lambda store: store.beat(BeatRequest(worker="skewed", lease_ms=1_000)),
    "sweep": lambda store: store.sweep(100),
    "reset_clock": lambda store: store.reset_clock("ann", "test"),
}


@pytest.mark.parametrize("hours", [1, -1])
@pytest.mark.parametrize("verb", WRITES)
async def test_process_with_a_clock_an_hour_off_writes_nothing_and_time_does_not_jump(
    right: SqliteStore, other: SqliteStore, own: OwnClock, path: Path, verb: str, hours: int
) -> None:
    await right.enqueue([job(1), job(2, due_at=system_clock() + HOUR_MS // 2)])
    (mine,) = (await claim(right)).jobs
    own.off_ms = hours * HOUR_MS
    with pytest.raises(ClockSkewed, match="clock") as error:
        await WRITES[verb](other)
    assert "10 s" in error.value.message
    assert "nothing was written" in error.value.hint
    assert number(path, HIGH_WATER) <= system_clock()
    assert (await right.sweep(100)).lost == 0
    assert await count(right, "scheduled") == 1
    assert await succeed(right, [(mine.id, mine.run)]) == [Verdict.DONE]


@pytest.mark.parametrize("hours", [1, -1])
async def test_process_writes_again_as_soon_as_its_clock_is_right(
    other: SqliteStore, own: OwnClock, hours: int
) -> None:
    await other.enqueue([job(1)])
    own.off_ms = hours * HOUR_MS
    for _ in range(2):
        with pytest.raises(ClockSkewed):
            await other.enqueue([job(2)])
    own.off_ms = 0
    await other.enqueue([job(2)])
    assert await count(other, "waiting") == 2


@pytest.mark.parametrize("off_ms", [CLOCK_LIMIT_MS * 4 // 5, -CLOCK_LIMIT_MS * 4 // 5])
async def test_clock_skew_below_the_limit_is_accepted(
    other: SqliteStore, own: OwnClock, off_ms: int
) -> None:
    own.off_ms = off_ms
    await other.enqueue([job(1)])
    assert await count(other, "waiting") == 1


def test_clock_that_moves_on_while_it_is_compared_is_not_skewed(tmp_path: Path) -> None:
    file = tmp_path / "stamped"
    file.touch()
    times = iter([system_clock() - HOUR_MS, system_clock() + HOUR_MS])
    assert skew_ms(lambda: next(times), file) == 0


def test_clock_is_compared_again_only_after_it_was_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[int] = []
    monkeypatch.setattr(timing, "skew_ms", lambda _clock, file: compared.append(file) or 0)
    monkeypatch.setattr(timing, "monotonic", lambda: 0.0)
    moved = FakeClock()
    clock = timing.CheckedClock(moved, 9)
    assert [clock(), clock()] == [moved.at] * 2
    assert compared == [9]
    moved.advance(-1_001)
    assert [clock(), clock()] == [moved.at] * 2
    assert compared == [9, 9]


async def test_file_created_under_its_own_clock_follows_it(path: Path) -> None:
    clock = FakeClock()
    store = SqliteStore(options(path), clock)
    await store.enqueue([job(1)])
    clock.advance(HOUR_MS)
    await store.enqueue([job(2)])
    assert (await store.read(StatsQuery())).now == clock.at
    await store.close()


async def test_time_does_not_go_back_with_the_clock_even_if_nothing_was_written(path: Path) -> None:
    clock = FakeClock()
    store = SqliteStore(options(path), clock)
    await claim(store)
    clock.advance(1_000)
    # The lease is long enough, so this writes nothing.
    later = (await claim(store, request=2)).now
    assert later == clock.at
    clock.advance(-1_000)
    assert (await claim(store, request=3)).now == later
    await store.close()


async def test_time_of_any_write_is_kept_for_the_next_process(path: Path) -> None:
    clock = FakeClock()
    store = SqliteStore(options(path), clock)
    await store.beat(BeatRequest(worker="w", lease_ms=1_000))
    clock.advance(500)
    # It changes only the worker's row.
    now = (await store.beat(BeatRequest(worker="w", lease_ms=9_000))).now
    await store.close()
    clock.advance(-500)
    later = SqliteStore(options(path), clock)
    assert (await claim(later)).now == now == clock.at + 500
    await later.close()


async def test_process_that_sets_the_time_back_follows_it_at_once(path: Path) -> None:
    clock = FakeClock()
    store = SqliteStore(options(path), clock)
    began = clock.at
    clock.advance(HOUR_MS)
    await store.enqueue([job(1)])
    clock.advance(-HOUR_MS)
    assert (await claim(store)).now == began + HOUR_MS
    await store.reset_clock("ann", "the clock was wrong")
    assert (await claim(store, worker="v")).now == began
    await store.close()
