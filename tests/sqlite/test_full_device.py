"""A full device: a clear error, no partial writes, and work in progress can finish."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headway.contract.outcomes import Verdict
from headway.core.errors import StoreError, StoreFull
from headway.stores.sqlite import SqliteStore, disk
from headway.stores.sqlite.call_queue import Call
from headway.stores.sqlite.disk import DiskSpace
from headway.stores.sqlite.ledger import SqliteLedger
from tests.plain_jobs import assert_clean, claim, count, job, jobs, succeed
from tests.sqlite.rig import door_shut, one_turn, options

BIG = b'{"n":"' + b"x" * 2000 + b'"}'


def limit_pages(pages: int) -> Call[None]:
    """Limit the file to a number of pages, as a full device would."""

    def shut(ledger: SqliteLedger) -> None:
        ledger.session.db.pragma("max_page_count", pages)

    return Call(shut)


async def test_full_device_refuses_the_jobs_and_writes_none_of_them(path: Path) -> None:
    store = SqliteStore(options(path))
    await store.enqueue(jobs(0, 20))
    await store._ask(store._writer.queue, limit_pages(80))
    with pytest.raises(StoreFull) as error:
        await store.enqueue(jobs(100, 500, args=BIG))
    assert "nothing was written" in error.value.hint
    assert await count(store, "waiting") == 20
    await store._ask(store._writer.queue, limit_pages(100_000))
    assert all(one.created for one in await store.enqueue(jobs(100, 500, args=BIG)))
    assert await count(store, "waiting") == 520
    await assert_clean(store)
    await store.close()


LIMIT_S = 60


@pytest.mark.parametrize("comes_first", [True, False])
async def test_small_calls_of_a_group_still_fit_where_a_large_one_does_not(
    path: Path, *, comes_first: bool
) -> None:
    store = SqliteStore(options(path))
    await store.enqueue(jobs(0, 20))
    taken = await claim(store)
    await store._ask(store._writer.queue, limit_pages(80))
    runs = [(one.id, one.run) for one in taken.jobs]
    with door_shut(path):
        # Enqueues of more than a few jobs are written as a group.
        sizes = {"large": jobs(100, 500, args=BIG), "beside": jobs(50, 20)}
        order = sizes if comes_first else reversed(sizes)
        enqueues = {one: asyncio.ensure_future(store.enqueue(sizes[one])) for one in order}
        large, beside = enqueues["large"], enqueues["beside"]
        small = asyncio.ensure_future(succeed(store, runs))
        await one_turn()
    with pytest.raises(StoreFull):
        await large
    assert all(one.created for one in await asyncio.wait_for(beside, LIMIT_S))
    assert await small == [Verdict.DONE] * 20
    assert await count(store, "succeeded") == 20
    assert await count(store, "waiting") == 20
    await store.close()


@pytest.mark.parametrize(
    ("blocks", "free", "short"),
    [
        (100_000, 1_000, False),
        (100_000, 999, True),
        # The reserve is at most a twentieth of the device.
        (10_000, 500, False),
        (10_000, 499, True),
    ],
)
def test_reserve_is_the_configured_size_or_a_share_of_a_small_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocks: int, free: int, short: bool
) -> None:
    facts = os.statvfs_result((512, 512, blocks, blocks, free, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: facts)
    space = DiskSpace(tmp_path / "headway.db", 1_000 * 512)
    assert (space.shortage() is not None) is short


def test_free_space_is_read_again_after_a_quarter_of_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, free = [0.0], [0]

    def found(_: Path) -> os.statvfs_result:
        return os.statvfs_result((512, 512, 10_000, 10_000, free[-1], 0, 0, 0, 0, 255))

    monkeypatch.setattr(os, "statvfs", found)
    monkeypatch.setattr(disk, "monotonic", lambda: now[-1])
    space = DiskSpace(tmp_path / "headway.db", 1_000)
    seen: list[bool] = []
    for at, blocks in ((0.0, 9_000), (0.24, 0), (0.25, 0), (0.49, 9_000), (0.5, 9_000)):
        now.append(at)
        free.append(blocks)
        seen.append(space.shortage() is not None)
    assert seen == [False, False, True, True, False]


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """Make the kernel refuse to let any file of this process grow beyond a size."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


async def test_kernel_refusal_to_grow_the_log_loses_nothing(path: Path) -> None:
    store = SqliteStore(options(path))
    await store.enqueue(jobs(0, 5))
    wal = path.with_name(f"{path.name}-wal")
    most = wal.stat().st_size + 8192
    with files_no_larger_than(most), pytest.raises(StoreError, match=r"disk|full|I/O") as error:
        await store.enqueue(jobs(100, 900, args=BIG))
    assert error.value.code in {"store_full", "store_unavailable", "outcome_unknown"}
    replies = await store.enqueue(jobs(100, 900, args=BIG))
    assert len(replies) == 900
    assert await count(store, "waiting") == 905
    await assert_clean(store)
    await store.close()


async def test_reserve_refuses_new_jobs_while_running_ones_can_still_be_settled(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(options(path, reserve_bytes=1_000_000))
    await store.enqueue([job(1)])
    run = (await claim(store)).jobs[0]
    real = os.statvfs

    def nearly_full(place: str) -> os.statvfs_result:
        found = list(real(place))
        found[4] = 3
        return os.statvfs_result(found)

    with monkeypatch.context() as patch:
        patch.setattr(os, "statvfs", nearly_full)
        store._writer._disk_space._checked_at = float("-inf")
        with pytest.raises(StoreFull, match="reserve"):
            await store.enqueue([job(2)])
        # Within one group, too.
        with door_shut(path):
            more = asyncio.ensure_future(store.enqueue([job(2)]))
            end = asyncio.ensure_future(succeed(store, [(run.id, run.run)]))
            await one_turn()
        with pytest.raises(StoreFull, match="reserve"):
            await more
        assert await end == [Verdict.DONE]
    store._writer._disk_space._checked_at = float("-inf")
    assert (await store.enqueue([job(2)]))[0].created
    await store.close()
