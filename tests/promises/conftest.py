from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headway.contract.store import Store
from headway.stores import open_store
from headway.stores.memory import MemoryStore
from headway.testing.clock import FakeClock
from headway.testing.conformance.rig import Rig


@pytest.fixture(params=["memory", "sqlite"])
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    clock = FakeClock()
    store: Store = MemoryStore(clock=clock)
    if request.param == "sqlite":
        store = open_store(f"sqlite:///{tmp_path}/headway.db?synchronous=normal", clock=clock)
    rig = Rig(store, clock)
    yield rig
    await rig.check()
    await store.close()
