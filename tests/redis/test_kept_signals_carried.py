"""A kept signal stays kept when a store of another kind is copied to Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from headway.contract.outcomes import HandedOver, KnownAs
from headway.contract.signals import Decided, Signal
from headway.core.state import State
from headway.stores import open_store
from headway.testing.clock import FakeClock
from headway.testing.conformance.editing import ALWAYS, CHECK, LINE, OPEN, PHONE
from headway.testing.conformance.moving import carry
from headway.testing.conformance.rig import Rig
from tests.servers.redis import GivenRedis, RedisServer


@pytest.fixture(params=["to redis", "from redis"])
async def pair(
    redis_server: RedisServer | GivenRedis, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[Rig, Rig]]:
    """A store to copy, and an empty one of the other kind."""
    clock = FakeClock()
    memory = open_store("memory://", clock=clock)
    redis = open_store(f"{redis_server.url}?namespace=kept-{uuid4().hex}", clock=clock)
    source, target = (memory, redis) if request.param == "to redis" else (redis, memory)
    yield Rig(source, clock), Rig(target, clock)
    for store in (source, target):
        await store.close()


async def test_late_signal_is_late_in_the_copy(pair: tuple[Rig, Rig]) -> None:
    source, target = pair
    (job,) = await source.add_many(1)
    worker = source.new_worker()
    await worker.take(1)
    await worker.report(HandedOver(job.id, 1, key="sid"))
    applied, late = (Signal(key="sid", event=event) for event in ("end", "after"))
    answers = [(await source.store.signal(one)).answer for one in (applied, late)]
    assert answers == ["applied", "late"]
    await carry(source, target)
    repeated = [(await target.store.signal(one)).answer for one in (applied, late)]
    assert repeated == ["already", "late"]


async def test_kept_signal_is_applied_unchanged_in_the_copy(pair: tuple[Rig, Rig]) -> None:
    source, target = pair
    await source.declare(LINE, PHONE, OPEN)
    first, second = await source.add_many(2)
    for key, gates in (("sid-1", CHECK), ("sid-2", ALWAYS)):
        again = Signal(
            key=key,
            event="busy",
            decided=Decided.RETRY,
            after_ms=0,
            reason="besetzt: ü",
            stage="check",
            gates=gates,
        )
        await source.store.signal(again)
    ended = Signal(key="sid-3", event="end", body=b'{"text":"\xc3\xbc"}')
    await source.store.signal(ended)
    await carry(source, target)
    worker = target.new_worker()
    await worker.take(2)
    await worker.report(HandedOver(first.id, 1, key="sid-1"))
    await worker.report(HandedOver(second.id, 1, key="sid-2"))
    views = [await target.view(job.id) for job in (first, second)]
    assert [(view.stage, view.gates, view.reason) for view in views] == [
        ("check", CHECK, "besetzt: ü"), ("check", ALWAYS, "besetzt: ü"),
    ]  # fmt: skip
    run = await worker.take_one()
    await worker.report(HandedOver(run.id, run.run, key="sid"))
    await worker.report(KnownAs(run.id, run.run, key="sid-3"))
    view = await target.view(run.id)
    assert (view.state, view.result) == (State.SUCCEEDED, ended.body)
