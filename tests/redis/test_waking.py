from __future__ import annotations

import asyncio
import threading
from math import inf
from typing import Any

import pytest

from headway.core.errors import OutcomeUnknown
from headway.stores.redis.options import parse_url
from headway.stores.redis.store import RedisStore
from headway.stores.redis.values import encode
from tests.redis.admin import admin, claim, new_job, new_url, opened
from tests.servers.proxy import Proxy
from tests.servers.redis import GivenRedis, RedisServer

LIMIT = 120


@pytest.fixture
def url(redis_server: RedisServer | GivenRedis) -> str:
    return new_url(redis_server.url)


async def asleep(store: RedisStore) -> asyncio.Task[None]:
    """Return a task that waits, and has claimed since the store started listening."""
    while True:
        seen = (await claim(store)).seen
        task = asyncio.create_task(store.wait(["main"], None, seen))
        done, _ = await asyncio.wait({task}, timeout=0.3)
        if not done:
            return task


async def test_waiter_is_woken_by_a_job_of_another_process(url: str) -> None:
    one, other = opened(url), opened(url)
    task = await asleep(one)
    await other.enqueue([new_job()])
    await asyncio.wait_for(task, LIMIT)
    assert len((await claim(one, request=2)).jobs) == 1
    await one.close()
    await other.close()


async def test_waiter_is_woken_by_a_job_of_its_own_process(url: str) -> None:
    store = opened(url)
    task = await asleep(store)
    await store.enqueue([new_job()])
    await asyncio.wait_for(task, LIMIT)
    await store.close()


async def test_wake_during_a_claim_ends_the_wait_after_it(url: str) -> None:
    store = opened(url)
    # The store listens from now on, so the start of listening wakes no waiter later.
    (await asleep(store)).cancel()
    run = store._calls.run

    async def overtaken(*args: Any, **options: Any) -> bytes:
        reply = await run(*args, **options)
        store._wakes.wake([("main", None)])
        return reply

    store._calls.run = overtaken  # type: ignore[method-assign]
    seen = (await claim(store)).seen
    await asyncio.wait_for(store.wait(["main"], None, seen), LIMIT)
    await store.close()


async def test_job_of_another_lane_wakes_no_waiter(url: str) -> None:
    one, other = opened(url), opened(url)
    task = await asleep(one)
    await other.enqueue([new_job(lane="elsewhere")])
    await other.enqueue([new_job(lane="main")])
    await asyncio.wait_for(task, LIMIT)
    await one.close()
    await other.close()


async def test_change_between_claim_and_wait_is_not_missed(url: str) -> None:
    one, other = opened(url), opened(url)
    task = await asleep(one)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    for request in range(2, 12):
        claimed = await claim(one, request=request, n=1000)
        await other.enqueue([new_job()])
        await asyncio.wait_for(one.wait(["main"], None, claimed.seen), LIMIT)
    await one.close()
    await other.close()


async def test_first_wait_does_not_miss_changes_before_it_listened(url: str) -> None:
    one, other = opened(url), opened(url)
    claimed = await claim(one)
    await other.enqueue([new_job()])
    await asyncio.wait_for(one.wait(["main"], None, claimed.seen), LIMIT)
    await one.close()
    await other.close()


async def test_nothing_is_published_without_waiters(url: str) -> None:
    store = opened(url)
    channel = f"{{headway:{parse_url(url).namespace}}}:wakes"
    with admin(url) as other, other.pubsub() as subscriber:
        subscriber.subscribe(channel)
        assert subscriber.get_message(timeout=LIMIT) is not None
        await store.enqueue([new_job()])
        (await asleep(store)).cancel()
        await store.enqueue([new_job()])
        message = subscriber.get_message(timeout=LIMIT)
        assert message is not None
        assert message["type"] == "message"
        assert subscriber.get_message(timeout=0) is None
    await store.close()


async def test_waiter_is_woken_again_after_its_connection_was_reset(url: str) -> None:
    with Proxy(url) as proxy:
        one, other = opened(proxy.url), opened(url)
        task = await asleep(one)
        proxy.reset()
        # The waiter may have missed a message, so it looks again by itself.
        await asyncio.wait_for(task, LIMIT)
        task = await asleep(one)
        await other.enqueue([new_job()])
        await asyncio.wait_for(task, LIMIT)
        await one.close()
        await other.close()


async def test_waiter_is_woken_by_a_job_of_its_own_process_whose_reply_is_lost(
    url: str,
) -> None:
    with Proxy(url) as proxy:
        store = opened(proxy.url)
        task = await asleep(store)
        job = new_job()
        proxy.lose_reply_to(job.id.encode())
        with pytest.raises(OutcomeUnknown):
            await store.enqueue([job])
        # Its own message does not wake it, and the reply did not arrive.
        await asyncio.wait_for(task, LIMIT)
        await store.close()


async def test_waiter_is_woken_by_a_job_written_after_its_caller_was_cancelled(
    url: str,
) -> None:
    with Proxy(url) as proxy:
        store = opened(proxy.url)
        for _ in range(2):
            # From the second on, an enqueue in this lane is one call of a script that is loaded.
            await store.enqueue([new_job()])
        (await asleep(store)).cancel()
        proxy.stall()
        sending = asyncio.create_task(store.enqueue([new_job()]))
        await asyncio.wait({sending}, timeout=0.3)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        # What woke all at the cancellation came before the job.
        seen = store._wakes.count  # pyright: ignore[reportPrivateUsage]
        task = asyncio.create_task(store.wait(["main"], None, seen))
        proxy.resume()
        await asyncio.wait_for(task, LIMIT)
        assert len((await claim(store, request=2)).jobs) == 1
        await store.close()


async def test_waiter_checks_once_more_when_its_registration_had_ended(url: str) -> None:
    one, other = opened(url), opened(url)
    task = await asleep(one)
    prefix = f"{{headway:{parse_url(url).namespace}}}"
    with admin(url) as client:
        client.delete(f"{prefix}:waiters")
        # No process is registered, so no message is sent.
        await other.enqueue([new_job()])
        one._listener._registered_at = -inf  # pyright: ignore[reportPrivateUsage]
        client.publish(f"{prefix}:wakes", encode(("another", [("elsewhere", False)])))
    await asyncio.wait_for(task, LIMIT)
    await one.close()
    await other.close()


class Pauses(threading.Event):
    """Records the pauses of the listener, and skips them."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.taken.append(timeout)
        return super().wait(0.001)


async def test_listener_that_was_connected_for_a_while_reconnects_at_once(
    url: str,
) -> None:
    with Proxy(url) as proxy:
        store = opened(proxy.url)
        pauses = store._listener._leaving = Pauses()  # pyright: ignore[reportPrivateUsage]
        await asleep(store)
        proxy.refuse()
        while len(pauses.taken) < 5:
            await asyncio.to_thread(threading.Event().wait, 0.005)
        assert pauses.taken[:3] == [0.25, 0.5, 1.0]
        proxy.resume()
        task = await asleep(store)
        before = len(pauses.taken)
        proxy.reset()
        await asyncio.wait_for(task, LIMIT)
        assert pauses.taken[before] == 0.25
        await store.close()


async def test_closed_store_leaves_no_thread(url: str) -> None:
    store = opened(url)
    (await asleep(store)).cancel()
    thread = store._listener._thread  # pyright: ignore[reportPrivateUsage]
    assert thread is not None
    await store.close()
    assert not thread.is_alive()
