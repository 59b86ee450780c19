"""Acknowledged writes are on the device, as shown by the system calls that SQLite makes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from headway.stores import open_store
from headway.testing.clock import FakeClock
from tests.plain_jobs import claim, job, succeed


class CountingFile(apsw.VFSFile):
    """A file of the operating system that counts its syncs."""

    def __init__(self, vfs: CountingVfs, name: object, flags: list[int]) -> None:
        self.vfs = vfs
        super().__init__(vfs.base, name, flags)

    def xSync(self, flags: int) -> None:  # noqa: N802  (the name that SQLite calls)
        self.vfs.syncs += 1
        super().xSync(flags)


class CountingVfs(apsw.VFS):
    """The operating system's VFS, with syncs counted."""

    def __init__(self) -> None:
        self.base = apsw.vfs_names()[0]
        self.syncs = 0
        super().__init__("counting", self.base, makedefault=True)

    def xOpen(self, name: object, flags: list[int]) -> CountingFile:  # noqa: N802
        return CountingFile(self, name, flags)


@pytest.fixture
def device() -> Iterator[CountingVfs]:
    vfs = CountingVfs()
    try:
        yield vfs
    finally:
        vfs.unregister()


@pytest.mark.parametrize(
    ("query", "syncs"), [("", True), ("?synchronous=full", True), ("?synchronous=normal", False)]
)
async def test_write_is_synced_before_its_reply_unless_the_url_says_normal(
    device: CountingVfs, path: Path, clock: FakeClock, query: str, *, syncs: bool
) -> None:
    store = open_store(f"sqlite:///{path}{query}", clock=clock)
    await store.enqueue([job(0)])
    for number in range(1, 4):
        before = device.syncs
        await store.enqueue([job(number)])
        assert (device.syncs > before) is syncs
    before = device.syncs
    runs = [(one.id, one.run) for one in (await claim(store)).jobs]
    assert (device.syncs > before) is syncs
    before = device.syncs
    await succeed(store, runs)
    assert (device.syncs > before) is syncs
    await store.close()
