from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headway.stores.sqlite import SqliteStore
from headway.testing.clock import FakeClock
from tests.sqlite.rig import options


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "headway.db"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(path: Path, clock: FakeClock) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore(options(path), clock)
    yield opened
    await opened.close()
