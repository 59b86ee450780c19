from __future__ import annotations

import pytest

from headway.stores.memory import MemoryStore
from headway.testing.conformance import MakeStore, StoreConformance


class TestMemoryStore(StoreConformance):
    @pytest.fixture
    def make_store(self) -> MakeStore:
        return lambda clock: MemoryStore(clock=clock)
