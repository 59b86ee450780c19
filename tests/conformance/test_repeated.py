"""The whole suite again, with every operation repeated as after a lost reply."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from uuid import uuid4

import pytest

from headway.stores import open_store
from headway.stores.memory import MemoryStore
from headway.testing.conformance import MakeStore, StoreConformance
from tests.conformance.twice import TwiceStore
from tests.servers.namespaces import Namespaces
from tests.servers.redis import GivenRedis, RedisServer


@pytest.mark.sampled
class TestRepeatedMemoryStore(StoreConformance):
    @pytest.fixture
    def make_store(self) -> MakeStore:
        return lambda clock: TwiceStore(MemoryStore(clock=clock))


@pytest.mark.slow
class TestRepeatedSqliteStore(StoreConformance):
    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        numbers = count(1)
        return lambda clock: TwiceStore(
            open_store(
                f"sqlite:///{tmp_path}/headway-{next(numbers)}.db?synchronous=normal", clock=clock
            )
        )


@pytest.mark.slow
class TestRepeatedRedisStore(StoreConformance):
    @pytest.fixture
    def make_store(self, redis_server: RedisServer | GivenRedis) -> MakeStore:
        return lambda clock: TwiceStore(
            open_store(f"{redis_server.url}?namespace=twice-{uuid4().hex}", clock=clock)
        )


@pytest.mark.slow
class TestRepeatedPostgresStore(StoreConformance):
    @pytest.fixture
    def make_store(self, shared_namespaces: Namespaces) -> Iterator[MakeStore]:
        yield lambda clock: TwiceStore(open_store(shared_namespaces.url(), clock=clock))
        shared_namespaces.take_back()
