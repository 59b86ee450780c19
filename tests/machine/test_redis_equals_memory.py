"""Random commands on Redis and on memory: equal replies, equal dumps, clean audits."""

from __future__ import annotations

from uuid import uuid4

import pytest

from headway.contract.store import Clock, Store
from headway.stores import open_store
from tests.depth import DEPTH
from tests.machine.machine import LONG, StoresMachine
from tests.servers.redis import GivenRedis, RedisServer


class RedisMachine(StoresMachine):
    """Memory and a namespace of a Redis."""

    store_name = "Redis"
    url: str

    def open(self, clock: Clock) -> Store:
        return open_store(f"{self.url}?namespace=machine-{uuid4().hex}", clock=clock)


@pytest.mark.slow
@pytest.mark.timeout(3600 * DEPTH)
class TestRedisEqualsMemoryInLongHistories(RedisMachine.TestCase):
    settings = LONG

    @pytest.fixture(autouse=True)
    def serve(self, redis_server: RedisServer | GivenRedis) -> None:
        RedisMachine.url = redis_server.url
