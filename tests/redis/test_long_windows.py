"""A rate over a long window is counted by what has left it, with the same result."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.redis.harness import Snippets
from tests.servers.redis import GivenRedis, RedisServer

FILL = """
local now = Time.now
for at = 1, 5000 do
  Time.now = now - 20000 + 3 * at
  Starts.add({ busy = at % 4 + 1, ['busy!'] = 7, bus = 9 })
end
Time.now = now
"""
COUNT = """
local all = Starts.total('busy', -1)
local counts = {}
for place, before in ipairs(request) do
  local after = Time.now - before
  counts[place] = { Starts.total('busy', after), Starts.total('busy', after, all) }
end
return { all, counts }
"""


@pytest.fixture
def lua(redis_server: RedisServer | GivenRedis) -> Iterator[Snippets]:
    snippets = Snippets(redis_server.url, "windows", ("tables.starts",))
    yield snippets
    snippets.close()


def test_starts_in_a_window_are_counted_equally_from_either_side(lua: Snippets) -> None:
    lua.run(FILL)
    windows = [2**41, 20_000, 19_997, 19_996, 12_345, 9_000, 5_001, 5_000, 4_999, 1, 0, -10]
    every, counts = lua.run(COUNT, windows)
    moments = [(20_000 - 3 * at, at % 4 + 1) for at in range(1, 5_001)]
    expected = [sum(number for ago, number in moments if ago < window) for window in windows]
    assert every == sum(number for _, number in moments)
    assert counts == [[number, number] for number in expected]


def test_long_window_is_not_read_if_few_starts_have_left_it(lua: Snippets) -> None:
    lua.run(FILL)
    before = walks(lua)
    lua.run("return Starts.total('busy', Time.now - 19990, 12500)")
    assert walks(lua) == before + 1


def walks(lua: Snippets) -> int:
    """Return how often the server has scanned a range of a sorted set by its members."""
    stats = lua.client.info("commandstats")
    return stats["cmdstat_zrangebylex"]["calls"]
