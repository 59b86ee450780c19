"""The fixtures that all groups of the suite share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from headway.testing.clock import FakeClock
from headway.testing.conformance.rig import MakeStore, Rig


class ConformanceGroup:
    """A group of tests that runs on the stores of `make_store`; its author overrides that."""

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def make_store(self) -> MakeStore:
        """Makes a new, empty store on each call; to be supplied by the store's author."""
        pytest.fail("a class that runs the suite has to supply the fixture `make_store`")

    @pytest_asyncio.fixture
    async def rig(self, make_store: MakeStore) -> AsyncIterator[Rig]:
        """A store and all that a test needs with it; checked and closed when the test is over."""
        clock = FakeClock()
        store = make_store(clock)
        rig = Rig(store, clock)
        try:
            yield rig
            await rig.check()
        finally:
            await store.close()
