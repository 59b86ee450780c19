"""Every test here runs on each store that there is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import headway as hw
from headway.stores import open_store
from tests.runtime.watched import WatchedStore


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[WatchedStore]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"
    inner = open_store(url)
    yield WatchedStore(inner)
    await inner.close()


@pytest.fixture
def app(store: WatchedStore) -> hw.App:
    return hw.App(store=store)
