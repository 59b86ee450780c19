"""A shorter script creates plain jobs, with the same result as the full one, or does nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from headway.core.job import DEFAULT_POLICY, derived_id
from headway.stores.redis.values import packed_policy, text_of
from tests.redis.harness import START_AT, Snippets
from tests.servers.redis import GivenRedis, RedisServer

MODULES = ("verbs.enqueue", "verbs.enqueue_plain", "base.run", "tables.lanes")
WHOLE = """
local reply = Enqueue.run(request)
return { string.find(reply.created, '[^c]') == nil, Run.wakes() }
"""
PLAIN = """
return { EnqueuePlain.run(request), Run.wakes() }
"""
ARGS = text_of(b'{"to": "\xc3\xa9"}')
_numbers = count(1)


@pytest.fixture
def pair(redis_server: RedisServer | GivenRedis) -> Iterator[tuple[Snippets, Snippets]]:
    """Two namespaces with equal contents, for the two scripts; the lanes exist."""
    namespaces = [f"plain-{next(_numbers)}" for _ in range(2)]
    both = [Snippets(redis_server.url, name, MODULES) for name in namespaces]
    for one in both:
        one.run("Lanes.ensure({ 'main', 'other', 'née' })")
    yield both[0], both[1]
    for one in both:
        one.close()


def job(number: int, shape: int = 1, **fields: Any) -> list[object]:
    """Return a job of a request, by position."""
    args = fields.get("args", ARGS)
    short: list[object] = [derived_id("plain", number), shape, args, fields.get("priority", 512)]
    return [*short, fields["due_at"]] if "due_at" in fields else short


def request(*jobs: list[object]) -> dict[str, object]:
    """Return a request for jobs in three lanes."""
    return {
        "policies": [packed_policy(DEFAULT_POLICY)],
        "gates": [],
        "shapes": [
            ["call", "main", "", 0, 1],
            ["call", "other", "acme", 0, 1],
            ["mail", "née", "Zoë", 0, 1],
        ],
        "jobs": list(jobs),
    }


def left(snippets: Snippets) -> dict[str, object]:
    """Return everything in the namespace, by the last parts of the keys."""
    return {key.rpartition(":")[2]: value for key, value in snippets.contents().items()}


def test_plain_jobs_have_the_same_effect_by_either_script(pair: tuple[Snippets, Snippets]) -> None:
    whole, plain = pair
    steps = [
        request(job(1), job(9, shape=2), job(10, shape=3)),
        request(job(2, args=text_of(b"{}")), job(3, shape=2, priority=0)),
        request(job(4, priority=4_294_967_295, due_at=START_AT + 10_000), job(5, due_at=1)),
        request(
            job(6, shape=3, args=text_of(b"x" * 256)), job(7, shape=2), job(8, due_at=START_AT)
        ),
        request(*(job(number, shape=1 + number % 3) for number in range(100, 1_100))),
    ]
    for step in steps:
        (done, woken), (made, roused) = plain.run(PLAIN, step), whole.run(WHOLE, step)
        assert done is made is True
        # Each waiter is woken once, in any order.
        assert sorted(map(str, woken)) == sorted(map(str, roused))
        assert left(plain) == left(whole)
        for one in pair:
            one.now += 1_000


@pytest.mark.parametrize(
    "asked",
    [
        request(job(1)),
        request(job(2), job(1)),
        request(job(3), job(4), job(3)),
        {**request(job(5)), "shapes": [["call", "new", "", 0, 1]]},
        {**request(job(6)), "shapes": [["call", "full", "", 0, 1]]},
        {**request(job(7)), "shapes": [["call", "set", "", 0, 1]]},
    ],
    ids=["known", "one known", "twice", "new lane", "limited lane", "lane limited by operator"],
)
def test_other_jobs_are_left_to_the_whole_script(
    pair: tuple[Snippets, Snippets], asked: dict[str, object]
) -> None:
    _, plain = pair
    limited = "{ name = 'full', weights = {}, max_backlog = 10 }"
    free = "{ name = 'set', weights = {} }"
    plain.run(f"Lanes.save({{ name = 'full', spec = {limited}, level = 0 }})")
    plain.run(f"Lanes.save({{ name = 'set', spec = {free}, override = {limited}, level = 0 }})")
    plain.run(PLAIN, request(job(1)))
    before = left(plain)
    assert plain.run(PLAIN, asked)[0] is False
    assert left(plain) == before
