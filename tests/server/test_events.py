from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import fastapi.routing
import httpx
import pytest

import headway as hw
from headway.contract.definitions import Role
from headway.core.errors import StoreUnavailable
from headway.server.overview import (
    MOST_WAITING,
    EventFeed,
    FeedMessage,
    Subscriber,
)
from headway.stores import open_store
from tests.server.rig import Rig, serving

LIMIT_S = 120


class Stream:
    """An event stream, read as a browser reads it."""

    def __init__(self, reply: httpx.Response) -> None:
        self._lines = reply.aiter_lines()
        self.comments = 0

    async def next(self) -> dict[str, Any] | None:
        """Return the next event, or None at the end."""
        event: dict[str, Any] = {}
        async with asyncio.timeout(LIMIT_S):
            async for line in self._lines:
                name, _, value = line.partition(": ")
                if not line and event:
                    return event
                if name == "":
                    self.comments += bool(line)
                elif line:
                    event[name] = json.loads(value) if name == "data" else value
        return None

    async def comment(self) -> None:
        async with asyncio.timeout(LIMIT_S):
            async for line in self._lines:
                if line.startswith(":"):
                    return


@asynccontextmanager
async def watching(rig: Rig, **headers: str) -> AsyncIterator[Stream]:
    headers["Authorization"] = f"Bearer {rig.tokens[Role.VIEWER]}"
    async with rig.http.stream("GET", "/events", headers=headers) as reply:
        assert reply.status_code == 200
        assert reply.headers["content-type"].startswith("text/event-stream")
        yield Stream(reply)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with serving(events_each_s=0.02) as running:
        yield running


async def until_no_stream_is_open(rig: Rig) -> None:
    async with asyncio.timeout(LIMIT_S):
        while len(rig.service.feed):
            await rig.service.timing.pause(0)


async def test_first_event_is_complete_and_later_ones_are_differences(rig: Rig):
    await rig.send(lane="a")
    async with watching(rig) as stream:
        whole = await stream.next()
        assert whole is not None
        assert whole["event"] == "whole"
        assert whole["data"].keys() == {"now", "stats", "lanes", "gates", "workers"}
        assert whole["data"]["lanes"]["a"]["counts"] == {"waiting": 1}
        await rig.send(lane="b")
        change = await stream.next()
        assert change is not None
        assert change["event"] == "change"
        assert change["data"].keys() == {"now", "stats", "lanes"}
        assert change["data"]["lanes"].keys() == {"b"}
        assert change["data"]["now"] > whole["data"]["now"]
        assert change["id"] != whole["id"]


async def test_returning_subscriber_gets_everything_again(rig: Rig):
    async with watching(rig) as stream:
        first = await stream.next()
    assert first is not None
    await rig.send(lane="b")
    async with watching(rig, **{"Last-Event-ID": first["id"]}) as stream:
        again = await stream.next()
    assert again is not None
    assert again["event"] == "whole"
    assert "b" in again["data"]["lanes"]


async def test_all_subscribers_share_one_read_and_no_subscriber_means_none(rig: Rig):
    async with watching(rig) as one, watching(rig) as other:
        await one.next()
        await other.next()
        assert len(rig.service.feed) == 2
        assert [task.get_name() for task in rig.service._tasks].count("events") == 1
        await rig.send(lane="b")
        changes = [await one.next(), await other.next()]
        assert changes[0] == changes[1]
    await until_no_stream_is_open(rig)
    assert rig.service.feed._reader is None


async def test_stream_ends_when_the_server_starts_to_stop(rig: Rig):
    async with watching(rig) as stream:
        await stream.next()
        rig.service.begin_stop()
        while await stream.next() is not None:
            pass
    async with watching(rig) as late:
        assert await late.next() is None


async def test_comment_is_sent_while_nothing_happens(rig: Rig, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fastapi.routing, "_PING_INTERVAL", 0.05)
    async with watching(rig) as stream:
        await stream.next()
        await stream.comment()


async def test_callers_without_permission_or_scoped_to_tenants_see_no_events(rig: Rig):
    scoped = await rig.token(Role.VIEWER, tenants=["acme"])
    for who, status in ((None, 401), (Role.PRODUCER, 403), (scoped, 403)):
        reply = await rig.call(who, "GET", "/events")
        assert reply.status_code == status
        assert reply.headers["content-type"] == "application/problem+json"
    assert len(rig.service.feed) == 0


async def test_unreachable_store_at_the_start_is_a_problem_and_not_a_stream(rig: Rig):
    class Away:
        async def read(self, query: Any) -> Any:
            raise StoreUnavailable("away")

    rig.service.feed._store = Away()  # pyright: ignore[reportAttributeAccessIssue]
    reply = await rig.call(Role.VIEWER, "GET", "/events")
    assert (reply.status_code, reply.json()["code"]) == (503, "store_unavailable")


async def test_outage_of_the_store_is_reported_once_and_then_everything_again(rig: Rig):
    class Blinking:
        def __init__(self, store: Any) -> None:
            self.store = store
            self.is_away = False
            self.refused = 0

        async def read(self, query: Any) -> Any:
            if self.is_away:
                self.refused += 1
                raise StoreUnavailable("away")
            return await self.store.read(query)

    store = rig.service.feed._store = Blinking(rig.store)  # pyright: ignore[reportAttributeAccessIssue]
    async with watching(rig) as stream:
        await stream.next()
        store.is_away = True
        away = await stream.next()
        assert away is not None
        assert (away["event"], away["data"]) == ("away", {"code": "store_unavailable"})
        async with asyncio.timeout(LIMIT_S):
            while store.refused < 3:
                await rig.service.timing.pause(0)
        async with watching(rig) as late:
            events = [one and one["event"] for one in (await late.next(), await late.next())]
            assert events == ["whole", "away"]
        store.is_away = False
        whole = await stream.next()
        assert whole is not None
        assert whole["event"] == "whole"


def message(number: int) -> FeedMessage:
    return FeedMessage(id=str(number), event="change", data="{}")


async def test_slow_subscriber_gets_the_newest_state_instead_of_too_many_changes():
    subscriber = Subscriber(message(0))
    for number in range(1, 1_000):
        whole = FeedMessage(id=str(number), event="whole", data="{}")
        subscriber.put(message(number), whole)
        assert len(subscriber._waiting) <= MOST_WAITING
    got = [await subscriber.next() for _ in range(len(subscriber._waiting))]
    first, last = got[0], got[-1]
    assert first is not None
    assert last is not None
    assert first.event == "whole"
    assert [one.id for one in got if one] == [str(number) for number in range(int(first.id), 1_000)]


async def test_one_subscriber_too_many_is_refused():
    store = open_store("memory://")
    loop = asyncio.get_running_loop()
    timing = hw.App("memory://")._timing
    feed = EventFeed(
        store, timing, each_s=1, spawn=lambda work, name: loop.create_task(work, name=name)
    )
    joined = [await feed.join() for _ in range(500)]
    with pytest.raises(hw.TooManyRequests):
        await feed.join()
    for one in joined:
        feed.leave(one)
    await store.close()
