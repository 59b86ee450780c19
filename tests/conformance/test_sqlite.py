from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from headway.stores import open_store
from headway.testing.conformance import MakeStore, StoreConformance


class TestSqliteStore(StoreConformance):
    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        numbers = count(1)
        return lambda clock: open_store(
            f"sqlite:///{tmp_path}/headway-{next(numbers)}.db?synchronous=normal", clock=clock
        )
