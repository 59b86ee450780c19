"""A verb that is refused late has rolled back all its earlier writes: no key shows any of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from typing import Any

import pytest
import redis

from headway.contract.claims import ClaimRequest
from headway.contract.definitions import (
    CloseGate,
    DeclareGate,
    DefineRequest,
    EnableEntry,
    Item,
    SetGate,
)
from headway.contract.outcomes import (
    Closing,
    GaveBack,
    HandedOver,
    NextStage,
    Outcome,
    Returned,
    SettleRequest,
    Snoozed,
    Succeeded,
)
from headway.contract.signals import Signal
from headway.contract.store import InFlight, Store
from headway.core.errors import (
    CallerError,
    IdConflict,
    InvalidState,
    InvalidValue,
    UnknownEntry,
    UnknownGate,
)
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateUse
from headway.core.job import FollowUp, JobPolicy, NewJob, derived_id
from headway.core.state import State
from headway.stores import open_store
from headway.testing.clock import FakeClock
from tests.servers.redis import GivenRedis, RedisServer

Contents = dict[str, object]
Read = Callable[[], Contents]

PHONE = Slots("phone:{number}", 1)
USE = GateUse(name="phone:1", template="phone:{number}")
NOWHERE = GateUse(name="nowhere", template="nowhere")
POLICY = JobPolicy(
    reconcile="ask", on_final=FollowUp(kind="alert", states=(State.DEAD, State.SUCCEEDED))
)
_numbers = count(1)


def job(number: int, **fields: object) -> NewJob:
    """Return a job with a gate, a key and a follow-up, whose end writes as much as possible."""
    given: dict[str, object] = {
        "id": derived_id("rolling", number),
        "kind": "call",
        "key": f"key {number}",
        "subject": f"about {number}",
        "gates": (USE,),
        "policy": POLICY,
        **fields,
    }
    return NewJob(**given)  # type: ignore[arg-type]


@pytest.fixture
def namespace() -> str:
    return f"rolling-{next(_numbers)}"


@pytest.fixture
async def store(redis_server: RedisServer | GivenRedis, namespace: str) -> AsyncIterator[Store]:
    """One job runs and holds the gate, one is parked at it, and one runs without a gate."""
    opened = open_store(f"{redis_server.url}?namespace={namespace}", clock=FakeClock())
    await define(opened, DeclareGate(spec=PHONE))
    await opened.enqueue([job(1), job(2), job(3, gates=())])
    claimed = await opened.claim(
        ClaimRequest(worker="w", request=1, lanes=(("main", 1),), n=10, free=10)
    )
    assert [one.id for one in claimed.jobs] == [job(1).id, job(3).id]
    yield opened
    await opened.close()


@pytest.fixture
def contents(redis_server: RedisServer | GivenRedis, namespace: str) -> Read:
    """Return a function that reads everything in the namespace, byte for byte."""

    def read() -> Contents:
        client: Any
        with redis.Redis.from_url(redis_server.url) as client:
            keys = list(client.scan_iter(match=f"{{headway:{namespace}}}:*"))
            assert keys
            return {key.decode(): _content(client, key) for key in keys}

    return read


def _content(client: Any, key: bytes) -> object:
    kind = client.type(key)
    if kind == b"hash":
        return client.hgetall(key)
    if kind == b"zset":
        return client.zrange(key, 0, -1, withscores=True)
    return client.dump(key)


async def define(store: Store, *items: Item) -> int:
    return await store.define(DefineRequest(items=items, author="ann", reason="a drill"))


async def settle(store: Store, *outcomes: Outcome) -> None:
    await store.settle(SettleRequest(worker="w", outcomes=outcomes))


async def assert_refused(verb: Awaitable[object], error: type[CallerError], contents: Read) -> None:
    before = contents()
    with pytest.raises(error):
        await verb
    assert contents() == before


FIRST, FREE = job(1).id, job(3).id
PLAIN = derived_id("rolling", "plain")


@pytest.mark.parametrize("result", [None, b"1"], ids=["plain", "result"])
async def test_settle_refused_by_a_follow_up_leaves_plain_ends_unwritten(
    store: Store, contents: Read, result: bytes | None
) -> None:
    """The id of the first job's follow-up is already taken."""
    taken = NewJob(id=derived_id("rolling", "taken"), kind="other", due_at=2**42)
    plain = NewJob(id=PLAIN, kind="plain")
    await store.enqueue([taken, plain])
    claimed = await store.claim(
        ClaimRequest(worker="w", request=2, lanes=(("main", 1),), n=1, free=1)
    )
    assert [one.id for one in claimed.jobs] == [PLAIN]
    then = (taken.changed(kind="wanted"),)
    outcomes = (Succeeded(PLAIN, 1), Succeeded(FIRST, 1, then=then, result=result))
    await assert_refused(settle(store, *outcomes), IdConflict, contents)


@pytest.mark.parametrize(
    ("outcomes", "error"),
    [
        ((Succeeded(FIRST, 1, then=(job(9, gates=(NOWHERE,)),)),), UnknownGate),
        ((Succeeded(FIRST, 1), Succeeded(FREE, 1, close=(Closing(gate="nowhere"),))), UnknownGate),
        ((HandedOver(FIRST, 1, key="sid"), NextStage(FREE, 1, gates=(NOWHERE,))), UnknownGate),
        ((HandedOver(FIRST, 1, key="sid"), Snoozed(FREE, 1)), InvalidValue),
        ((HandedOver(FIRST, 1, key="sid"), HandedOver(FREE, 1)), InvalidValue),
        ((Succeeded(FIRST, 1, result=b"1"), Returned(FREE, 1)), InvalidState),
        ((HandedOver(FIRST, 1, key="sid"), GaveBack(FREE, 1, gate="phone:1")), InvalidValue),
    ],
    ids=["then", "close", "next stage", "snooze", "hand over", "returned", "gave back"],
)
async def test_refused_settle_leaves_every_key_unchanged(
    store: Store, contents: Read, outcomes: tuple[Outcome, ...], error: type[CallerError]
) -> None:
    await assert_refused(settle(store, *outcomes), error, contents)


@pytest.mark.parametrize(
    ("item", "error"),
    [
        (EnableEntry(name="nothing", enabled=True), UnknownEntry),
        (CloseGate(name="nowhere"), UnknownGate),
        (SetGate(name="nowhere", capacity=3), UnknownGate),
        (DeclareGate(spec=Slots("phone:{number}", 1, shared=True)), InvalidValue),
    ],
    ids=["entry", "close", "set", "declare"],
)
async def test_refused_definition_undoes_those_before_it(
    store: Store, contents: Read, item: Item, error: type[CallerError]
) -> None:
    """The first items raise a capacity (which feeds the parked job) and close a gate."""
    items = (SetGate(name="phone:1", capacity=5), CloseGate(name="lane:main"), item)
    await assert_refused(define(store, *items), error, contents)


async def test_refused_restore_leaves_every_key_unchanged(store: Store, contents: Read) -> None:
    good = InFlight(job=job(7), signal_key="sid 7", since_at=1, deadline_ms=1000)
    bad = InFlight(job=job(8, gates=(NOWHERE,)), signal_key="sid 8", since_at=1, deadline_ms=1000)
    await assert_refused(store.restore([good, bad]), UnknownGate, contents)


async def test_accepted_settle_is_visible_in_the_keys(store: Store, contents: Read) -> None:
    """Proves that the other tests compare keys that can differ."""
    before = contents()
    await settle(store, HandedOver(FIRST, 1, key="sid"), Succeeded(FREE, 1))
    await store.signal(Signal(key="sid", event="1"))
    after = contents()
    assert sum(before.get(key) != value for key, value in after.items()) > 10
