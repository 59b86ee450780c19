"""What breaks under the store on Redis, at work: told exactly, and mended by a repeat."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headway.core.errors import OutcomeUnknown
from headway.testing.clock import FakeClock
from tests.redis.admin import new_url, opened
from tests.servers.proxy import Proxy
from tests.servers.redis import GivenRedis, RedisServer
from tests.torture.every_verb import OPERATIONS, differences


@pytest.fixture(scope="module")
def way(redis_server: RedisServer | GivenRedis) -> Iterator[Proxy]:
    with Proxy(redis_server.url) as proxy:
        yield proxy


@pytest.mark.parametrize("name", list(OPERATIONS))
async def test_operation_of_which_each_reply_was_lost_once_has_been_done_once(
    redis_server: RedisServer | GivenRedis, way: Proxy, name: str
) -> None:
    clocks = FakeClock(), FakeClock()
    undisturbed = opened(new_url(redis_server.url), clocks[0])
    disturbed = opened(new_url(way.url), clocks[1])
    found, raised = await differences(name, undisturbed, disturbed, clocks, way)
    await undisturbed.close()
    await disturbed.close()
    assert found == []
    assert OutcomeUnknown in raised
