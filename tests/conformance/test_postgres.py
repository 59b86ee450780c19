from __future__ import annotations

from collections.abc import Iterator

import pytest

from headway.stores import open_store
from headway.testing.conformance import MakeStore, StoreConformance
from tests.servers.namespaces import Namespaces


@pytest.mark.sampled
class TestPostgresStore(StoreConformance):
    @pytest.fixture
    def make_store(self, shared_namespaces: Namespaces) -> Iterator[MakeStore]:
        yield lambda clock: open_store(shared_namespaces.url(), clock=clock)
        shared_namespaces.take_back()
