from __future__ import annotations

from uuid import uuid4

import pytest

from headway.stores import open_store
from headway.testing.conformance import MakeStore, StoreConformance
from tests.servers.redis import GivenRedis, RedisServer


@pytest.mark.sampled
class TestRedisStore(StoreConformance):
    @pytest.fixture
    def make_store(self, redis_server: RedisServer | GivenRedis) -> MakeStore:
        return lambda clock: open_store(
            f"{redis_server.url}?namespace=suite-{uuid4().hex}&timeout_ms=120000", clock=clock
        )
