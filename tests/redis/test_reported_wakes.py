"""The wakes that a script reports: each lane once, with its earliest time."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.redis.harness import START_AT, Snippets
from tests.servers.redis import GivenRedis, RedisServer


@pytest.fixture
def lua(redis_server: RedisServer | GivenRedis) -> Iterator[Snippets]:
    snippets = Snippets(redis_server.url, f"t{uuid4().hex}", ("base.run",))
    yield snippets
    snippets.close()


@pytest.mark.parametrize(
    ("moments", "told"),
    [
        ([60, 30, 90], START_AT + 30),
        ([60, 0, 30], False),
        ([-5], False),
        ([None, 30], False),
    ],
)
def test_lane_is_published_once_with_its_first_time(
    lua: Snippets, moments: list[int | None], told: object
) -> None:
    asked = "\n".join(
        f"Run.wake('main', {'nil' if ms is None else f'Time.now + {ms}'})" for ms in moments
    )
    assert lua.run(f"{asked}\nreturn Run.wakes()") == [["main", told]]


def test_lanes_and_any_lane_are_published_separately(lua: Snippets) -> None:
    found = lua.run("Run.wake('b') Run.wake(nil, Time.now + 5) Run.wake('a') return Run.wakes()")
    assert found == [["b", False], [False, START_AT + 5], ["a", False]]
