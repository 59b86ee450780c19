"""The whole suite again, with every operation repeated as after a lost reply."""

from __future__ import annotations

import pytest

from headway.stores.memory import MemoryStore
from headway.testing.conformance import MakeStore, StoreConformance
from tests.conformance.twice import TwiceStore


class TestRepeatedMemoryStore(StoreConformance):
    @pytest.fixture
    def make_store(self) -> MakeStore:
        return lambda clock: TwiceStore(MemoryStore(clock=clock))
