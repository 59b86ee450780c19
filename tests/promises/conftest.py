from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from headway.stores import open_store
from headway.testing.clock import FakeClock
from headway.testing.conformance.rig import Rig
from tests.servers.stores import SERVERS_SAMPLED, NewUrl


@pytest.fixture(params=SERVERS_SAMPLED)
async def rig(request: pytest.FixtureRequest, new_url: NewUrl) -> AsyncIterator[Rig]:
    clock = FakeClock()
    store = open_store(new_url(request.param), clock=clock)
    rig = Rig(store, clock)
    yield rig
    await rig.check()
    await store.close()
