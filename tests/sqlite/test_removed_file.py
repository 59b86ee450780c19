from __future__ import annotations

import os
from pathlib import Path

import pytest

from headway.core.errors import StoreError
from headway.stores.sqlite import SqliteStore
from headway.testing.clock import FakeClock
from tests.plain_jobs import job
from tests.sqlite.rig import options


async def test_removed_file_is_reported_as_gone(path: Path, clock: FakeClock) -> None:
    store = SqliteStore(options(path), clock)
    await store.enqueue([job(1)])
    os.unlink(path)
    store._writer.check_file()
    with pytest.raises(StoreError):
        await store.enqueue([job(2)])
    await store.close()
