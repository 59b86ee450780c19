"""The quick path of a verb replies to common calls as the verb does, and leaves the rest to it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha1
from itertools import count
from random import Random
from typing import Any

import pytest

from headway.contract.claims import BeatRequest, ClaimRequest
from headway.contract.definitions import (
    DeclareGate,
    DeclareLane,
    DefineRequest,
    Item,
    LaneSpec,
    ResetGate,
    SetGate,
    SetLane,
)
from headway.contract.outcomes import (
    Closing,
    Failed,
    Outcome,
    Released,
    SettleRequest,
    Snoozed,
    Succeeded,
)
from headway.core.errors import StoreChanged
from headway.core.gates.slots import Slots
from headway.core.job import NewJob, derived_id
from headway.stores.redis.scripts import Script, script
from headway.stores.redis.store import RedisStore
from headway.stores.redis.values import encode
from headway.testing.jobs import use_of
from tests.redis.admin import admin, new_url, opened
from tests.redis.harness import START_AT, Snippets
from tests.servers.redis import GivenRedis, RedisServer

ANSWERED = "if answer then return answer end"
COUNTED = "if answer then redis.call('INCR', KEYS[1] .. ':answered') return answer end"

Step = Callable[["World"], Awaitable[object]]


def by_quick_way(name: str) -> Script:
    """Return a script that counts the replies of its quick path."""
    return _patched(name, ANSWERED, COUNTED)


def by_verb(name: str) -> Script:
    """Return a script without its quick path."""
    return _patched(name, r"local answer, request = Quick\.call\(\w+\)", "local answer, request")


def _patched(name: str, old: str, new: str) -> Script:
    found = script(name)
    text = re.sub(old, new, found.text)
    return replace(found, text=text, sha=sha1(text.encode(), usedforsecurity=False).hexdigest())


class World:
    """A store with scripts made by `made`, and its replies."""

    def __init__(self, url: str, made: Callable[[str], Script]) -> None:
        self.now = START_AT
        self.made = made
        self.url = new_url(url)
        with self.scripts():
            self.store: RedisStore = opened(self.url, lambda: self.now)
        self.snippets = Snippets(url, self.url.rpartition("=")[2])
        self.request = 0
        self.running: list[tuple[str, str, int]] = []

    @contextmanager
    def scripts(self) -> Generator[None]:
        """Use this world's scripts instead of those that the store would run."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("headway.stores.redis.store.script", self.made)
            yield

    def answered(self) -> int:
        """Return how often the quick path replied since the last call."""
        with admin(self.url) as other:
            found: Any = [
                int(other.getdel(key)) for key in other.keys(f"*{self._namespace}*:answered")
            ]
        return sum(found)

    @property
    def _namespace(self) -> str:
        return self.url.rpartition("=")[2]

    def left(self) -> dict[str, dict[bytes, object]]:
        """Return everything in the store, except for its identity."""
        found = {key.rpartition(":")[2]: value for key, value in self.snippets.contents().items()}
        found["facts"].pop(b"identity")
        return found

    async def enqueue(self, number: int, **fields: Any) -> object:
        id_ = _id(number)
        asked: dict[str, Any] = {"kind": "call", "args": b'{"n": 1}', **fields}
        return await self.store.enqueue([NewJob(id=id_, **asked)])

    async def claim(self, n: int = 10, worker: str = "w", **fields: Any) -> object:
        self.request += 1
        asked: dict[str, Any] = {"lanes": (("main", 1),), "request": self.request}
        asked |= {"worker": worker, "n": n, "free": n, "lease_ms": 30_000, **fields}
        reply = await self.store.claim(ClaimRequest(**asked))
        self.running += [(worker, job.id, job.run) for job in reply.jobs]
        return replace(reply, seen=0)

    def take_running(self, worker: str = "w") -> list[tuple[str, int]]:
        """Return the runs that a worker has claimed since the last call."""
        taken = [(job, run) for by, job, run in self.running if by == worker]
        self.running = [one for one in self.running if one[0] != worker]
        return taken

    async def settle(self, *numbers: int, run: int = 1, worker: str = "w") -> object:
        ids = [_id(number) for number in numbers]
        return await self.end(*(Succeeded(id_, run) for id_ in ids), worker=worker)

    async def end(self, *outcomes: Outcome, worker: str = "w") -> object:
        return await self.store.settle(SettleRequest(worker=worker, outcomes=outcomes))

    async def define(self, item: Item) -> object:
        return await self.store.define(DefineRequest(items=(item,), author="me"))

    async def cap(self, gate: str) -> object:
        return await self.define(SetGate(name=gate, capacity=1))

    async def mark(self) -> object:
        """Mark the store as restored, as another process does."""
        mark = encode((self.now, "another", "it is older"))
        with admin(self.url) as other:
            other.hset(f"{{headway:{self._namespace}}}:facts", "suspect", mark)
        return None

    async def uncap(self, gate: str) -> object:
        return await self.define(ResetGate(name=gate))

    async def lane(self, **fields: Any) -> object:
        return await self.define(DeclareLane(spec=LaneSpec(name="main", **fields)))

    async def leave(self) -> object:
        return await self.store.beat(BeatRequest(worker="w", running=(), leaving=True))

    async def set_back(self, ms: int) -> object:
        self.now -= ms
        return await self.store.reset_clock("me", "the clock was wrong")

    async def wait(self, ms: int) -> object:
        self.now += ms
        return None

    async def close(self) -> None:
        await self.store.close()
        self.snippets.close()


def _id(number: int) -> str:
    return derived_id("quick", number)


async def _of_two(world: World) -> object:
    return await world.end(Succeeded(_id(1), 1), Succeeded(_id(2), 1, result=b"1"))


async def _fail(world: World) -> object:
    return await world.end(Failed(_id(1), 1, error="no"))


async def _hand_back(world: World) -> object:
    return await world.end(Released(_id(1), 1))


async def _refused(world: World) -> object:
    with pytest.raises(StoreChanged) as refused:
        await world.claim()
    return str(refused.value)


# The store knows a lane and a worker.
KNOWN: list[Step] = [lambda w: w.enqueue(0), lambda w: w.claim(), lambda w: w.settle(0)]
TWO: list[Step] = [*KNOWN, lambda w: w.enqueue(1), lambda w: w.enqueue(2)]

FULL: list[Step] = [
    *[*TWO, lambda w: w.enqueue(3), lambda w: w.cap("lane:main")],
    *[lambda w: w.claim(1), lambda w: w.claim(1), lambda w: w.wait(500)],
]
"""Two jobs have waited in a full lane."""

OPENED: list[Step] = [
    *[*FULL, lambda w: w.uncap("lane:main"), lambda w: w.settle(1), lambda w: w.claim()],
    lambda w: w.wait(500),
]
"""Both have started since, 500 ms ago."""

LINE = Slots("line", 1)
PHONE = Slots("phone:{phone}", 1)

ANSWERS: dict[str, tuple[list[Step], Step]] = {
    "claim of what is due after its lane was full": (
        [*OPENED, lambda w: w.enqueue(4, due_at=w.now)],
        lambda w: w.claim(),
    ),
    "claim of what is due when its lane is no longer full": (
        [*OPENED, lambda w: w.enqueue(4, due_at=w.now - 500)],
        lambda w: w.claim(),
    ),
    "enqueue": (KNOWN, lambda w: w.enqueue(1)),
    "enqueue due before": (KNOWN, lambda w: w.enqueue(1, due_at=START_AT - 5, priority=7)),
    "claim of one of two": (TWO, lambda w: w.claim(1)),
    "claim of both": (TWO, lambda w: w.claim(2)),
    "claim of more": (TWO, lambda w: w.claim(3)),
    "claim with a shorter lease": (TWO, lambda w: w.claim(lease_ms=10_000)),
    "claim of none": (KNOWN, lambda w: w.claim()),
    "claim of none later": ([*KNOWN, lambda w: w.wait(20_000)], lambda w: w.claim()),
    "claim before another is due": (
        [*TWO, lambda w: w.enqueue(3, due_at=START_AT + 900)],
        lambda w: w.claim(),
    ),
    "claim by a clock that went back": (
        [*TWO, lambda w: w.wait(5_000), lambda w: w.enqueue(3), lambda w: w.wait(-4_000)],
        lambda w: w.claim(),
    ),
    "settle of one": ([*TWO, lambda w: w.claim()], lambda w: w.settle(1)),
    "settle of two": ([*TWO, lambda w: w.claim()], lambda w: w.settle(2, 1)),
    "settle with a result": ([*TWO, lambda w: w.claim()], _of_two),
    "settle of a subject": (
        [*KNOWN, lambda w: w.enqueue(1, subject="s"), lambda w: w.claim()],
        lambda w: w.settle(1),
    ),
    "settle while a lease is young": (
        [*TWO, lambda w: w.claim(), lambda w: w.wait(29_999)],
        lambda w: w.settle(1),
    ),
}

LEAVES: dict[str, tuple[list[Step], Step]] = {
    "enqueue in a new lane": ([], lambda w: w.enqueue(1)),
    "enqueue in a limited lane": (
        [*KNOWN, lambda w: w.lane(max_backlog=5)],
        lambda w: w.enqueue(1),
    ),
    "enqueue of a new kind": (KNOWN, lambda w: w.enqueue(1, kind="mail")),
    "enqueue of a known id": (TWO, lambda w: w.enqueue(1)),
    "enqueue for later": (KNOWN, lambda w: w.enqueue(1, due_at=START_AT + 1)),
    "claim by a new worker": (TWO, lambda w: w.claim(worker="other")),
    "claim when the lease has ended": ([*TWO, lambda w: w.wait(30_000)], lambda w: w.claim()),
    "claim sent again": (TWO, lambda w: w.claim(request=1)),
    "claim in a store that another found restored": ([*TWO, lambda w: w.mark()], _refused),
    "claim of two lanes": (TWO, lambda w: w.claim(lanes=(("main", 1), ("other", 1)))),
    "claim of two kinds": ([*TWO, lambda w: w.enqueue(3, kind="mail")], lambda w: w.claim()),
    "claim of a subject": ([*TWO, lambda w: w.enqueue(3, subject="s")], lambda w: w.claim()),
    "claim after a retry": (
        [*TWO, lambda w: w.claim(1), _fail, lambda w: w.wait(90_000_000), lambda w: w.claim(1)],
        lambda w: w.claim(1),
    ),
    "claim of long arguments": (
        [*TWO, lambda w: w.enqueue(3, args=b"1" * 257)],
        lambda w: w.claim(),
    ),
    "claim when one expires": (
        [*TWO, lambda w: w.enqueue(3, expires_at=START_AT + 9), lambda w: w.wait(9)],
        lambda w: w.claim(),
    ),
    "claim of one when another expires": (
        [*TWO, lambda w: w.enqueue(3, expires_at=START_AT + 9), lambda w: w.wait(9)],
        lambda w: w.claim(1),
    ),
    "claim by a worker that left before the clock was set back": (
        [*TWO, lambda w: w.leave(), lambda w: w.set_back(60_000), lambda w: w.enqueue(3)],
        lambda w: w.claim(1),
    ),
    "claim when one is due": (
        [*TWO, lambda w: w.enqueue(3, due_at=START_AT + 9), lambda w: w.wait(9)],
        lambda w: w.claim(),
    ),
    "claim in a capped lane": ([*TWO, lambda w: w.cap("lane:main")], lambda w: w.claim()),
    "claim in a lane that was full for a while": (
        [
            *[*TWO, lambda w: w.cap("lane:main"), lambda w: w.claim(1), lambda w: w.claim(1)],
            *[lambda w: w.wait(500), lambda w: w.uncap("lane:main"), lambda w: w.settle(1)],
        ],
        lambda w: w.claim(),
    ),
    "claim of what waited while its lane was full": (
        [
            *[*FULL, lambda w: w.uncap("lane:main"), lambda w: w.settle(1)],
            *[lambda w: w.claim(1), lambda w: w.wait(500)],
        ],
        lambda w: w.claim(1),
    ),
    "claim of what is due just before its lane is no longer full": (
        [*OPENED, lambda w: w.enqueue(4, due_at=w.now - 501)],
        lambda w: w.claim(),
    ),
    "claim at a shared gate": (
        [
            *[*KNOWN, lambda w: w.define(DeclareGate(spec=LINE))],
            *[lambda w: w.enqueue(1, gates=(use_of(LINE),)), lambda w: w.claim()],
            lambda w: w.enqueue(2, gates=(use_of(LINE),)),
        ],
        lambda w: w.claim(),
    ),
    "claim at a keyed gate": (
        [
            *[*KNOWN, lambda w: w.define(DeclareGate(spec=PHONE))],
            lambda w: w.enqueue(1, gates=(use_of(PHONE, phone="1"),)),
        ],
        lambda w: w.claim(),
    ),
    "claim in a lane that an operator has limited": (
        [
            *[*TWO, lambda w: w.lane()],
            lambda w: w.define(SetLane(spec=LaneSpec(name="main", concurrency=1))),
        ],
        lambda w: w.claim(),
    ),
    "claim that goes on after a flow": (TWO, lambda w: w.claim(after={"main": 3})),
    "claim of a capped kind": ([*TWO, lambda w: w.cap("kind:call")], lambda w: w.claim()),
    "claim of a capped tenant": ([*TWO, lambda w: w.cap("tenant:")], lambda w: w.claim()),
    "claim under a cap of all": ([*TWO, lambda w: w.cap("all")], lambda w: w.claim()),
    "claim in a lane of one place": ([*TWO, lambda w: w.lane(concurrency=1)], lambda w: w.claim()),
    "claim in a fair lane": ([*TWO, lambda w: w.lane(fair="tenant")], lambda w: w.claim()),
    "settle with a long result": (
        [*TWO, lambda w: w.claim()],
        lambda w: w.end(Succeeded(_id(1), 1, result=b"1" * 257)),
    ),
    "settle with a result and a job to create": (
        [*TWO, lambda w: w.claim()],
        lambda w: w.end(
            Succeeded(_id(1), 1, result=b"1", then=(NewJob(id=_id(9), kind="call"),)),
        ),
    ),
    "settle with a result and a gate to close": (
        [*TWO, lambda w: w.claim()],
        lambda w: w.end(
            Succeeded(_id(1), 1, result=b"1", close=(Closing(gate="kind:call", for_ms=9),)),
        ),
    ),
    "settle with a result of a subject": (
        [*KNOWN, lambda w: w.enqueue(1, subject="s"), lambda w: w.claim()],
        lambda w: w.end(Succeeded(_id(1), 1, result=b"1")),
    ),
    "settle of one twice": (
        [*TWO, lambda w: w.claim()],
        lambda w: w.end(Succeeded(_id(1), 1, result=b"1"), Succeeded(_id(1), 1, result=b"2")),
    ),
    "settle of a failure": ([*TWO, lambda w: w.claim()], _fail),
    "settle of what is settled": (
        [*TWO, lambda w: w.claim(), lambda w: w.settle(1)],
        lambda w: w.settle(1, 2),
    ),
    "settle of another run": ([*TWO, lambda w: w.claim()], lambda w: w.settle(1, run=2)),
    "settle of an earlier run": (
        [*TWO, lambda w: w.claim(), _hand_back, lambda w: w.claim()],
        lambda w: w.settle(1),
    ),
    "settle with a result of an earlier run": (
        [*TWO, lambda w: w.claim(), _hand_back, lambda w: w.claim()],
        lambda w: w.end(Succeeded(_id(1), 1, result=b"1")),
    ),
    "settle of what has a reason": (
        [
            *[*TWO, lambda w: w.claim()],
            lambda w: w.end(Snoozed(_id(1), 1, after_ms=0, reason="quiet hours")),
            lambda w: w.claim(),
        ],
        lambda w: w.settle(1, run=2),
    ),
    "settle of nothing": (KNOWN, lambda w: w.settle(77)),
    "settle by another": (
        [*TWO, lambda w: w.claim(1), lambda w: w.claim(1, worker="other")],
        lambda w: w.settle(1, 2),
    ),
    "settle without a lease": (
        [*TWO, lambda w: w.claim(), lambda w: w.wait(30_000)],
        lambda w: w.settle(1),
    ),
    "settle of what holds a permit": (
        [*TWO, lambda w: w.claim(), lambda w: w.cap("kind:call")],
        lambda w: w.settle(1),
    ),
}


def _compared(
    server: RedisServer | GivenRedis, before: list[Step], step: Step
) -> tuple[int, bool, bool]:
    """Return the number of quick replies to the last step; if replies and contents are equal."""
    answered, alike, left = _run_both(server, [*before, step])
    return answered[-1], alike, left


def _run_both(server: RedisServer | GivenRedis, steps: list[Step]) -> tuple[list[int], bool, bool]:
    """Return the number of quick replies to each step; if replies and contents are equal."""
    replies: list[list[object]] = []
    worlds: list[World] = []
    answered: list[int] = []

    async def run(world: World) -> None:
        answered.clear()
        told: list[object] = []
        for step in steps:
            told.append(await step(world))
            answered.append(world.answered())
        replies.append(told)

    for made in (by_verb, by_quick_way):
        world = World(server.url, made)
        worlds.append(world)
        with world.scripts():
            asyncio.run(run(world))
    contents = [world.left() for world in worlds]
    for world in worlds:
        asyncio.run(world.close())
    return answered, replies[0] == replies[1], contents[0] == contents[1]


@pytest.mark.parametrize(("before", "step"), ANSWERS.values(), ids=ANSWERS)
def test_fast_path_replies_and_has_the_effect_of_the_verb(
    before: list[Step], step: Step, redis_server: RedisServer | GivenRedis
) -> None:
    assert _compared(redis_server, before, step) == (1, True, True)


@pytest.mark.parametrize(("before", "step"), LEAVES.values(), ids=LEAVES)
def test_fast_path_leaves_to_the_verb_what_it_cannot_do(
    before: list[Step], step: Step, redis_server: RedisServer | GivenRedis
) -> None:
    assert _compared(redis_server, before, step) == (0, True, True)


MANY = 20
"""Number of random histories."""


def _history(draw: Random) -> list[Step]:
    """Return the steps of a random history: mostly plain jobs, and what the quick path leaves."""
    numbers = count(10)

    def enqueue() -> Step:
        number, late = next(numbers), draw.randrange(-600, 1)
        less_plain: list[dict[str, Any]] = [
            *[{"priority": 7}, {"tenant": "acme"}, {"kind": "mail"}, {"subject": "s"}],
            *[{"gates": (use_of(LINE),)}, {"gates": (use_of(PHONE, phone="1"),)}],
            {"expires_at": START_AT + 2_000},
        ]
        more = draw.choice([{}, {}, {}, {}, *less_plain])
        return lambda w: w.enqueue(number, due_at=w.now + late, **more)

    def claim() -> Step:
        n, worker = draw.randint(1, 3), draw.choice("www2")
        return lambda w: w.claim(n, worker)

    def settle() -> Step:
        return draw.choice([_succeed_all, _succeed_all, _succeed_all, _release_all])

    def limit() -> Step:
        gate = draw.choice(["lane:main", "kind:call", "tenant:", "all"])
        return draw.choice([lambda w: w.cap(gate), lambda w: w.uncap(gate)])

    def change() -> Step:
        spec = LaneSpec(name="main", **draw.choice([{}, {"concurrency": 2}, {"fair": "tenant"}]))
        item = draw.choice([DeclareLane(spec=spec), SetLane(spec=spec)])
        return lambda w: w.define(item)

    def wait() -> Step:
        ms = draw.choice([1, 499, 500, 501, 3_000])
        return lambda w: w.wait(ms)

    gates: list[Step] = [lambda w: w.define(DeclareGate(spec=LINE))]
    gates += [lambda w: w.define(DeclareGate(spec=PHONE))]
    makers = draw.choices([enqueue, claim, settle, limit, change, wait], [9, 9, 4, 1, 1, 2], k=40)
    return [*gates, *KNOWN, *(make() for make in makers)]


async def _succeed_all(world: World) -> object:
    return await world.end(*(Succeeded(*run) for run in world.take_running()))


async def _release_all(world: World) -> object:
    return await world.end(*(Released(*run) for run in world.take_running()))


def test_random_histories_are_the_same_without_the_fast_path(
    redis_server: RedisServer | GivenRedis,
) -> None:
    quick = 0
    for seed in range(MANY):
        answered, replies, contents = _run_both(redis_server, _history(Random(seed)))
        assert (replies, contents) == (True, True), f"seed {seed}"
        quick += sum(answered)
    assert quick > 5 * MANY
