"""The live fragments: which streams share a read, what is sent, and no needless reads."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast
from unittest.mock import patch

import httpx

from headway.contract.definitions import Role
from headway.contract.views import JobQuery, StatsQuery
from headway.core.errors import StoreUnavailable
from headway.runtime.timing import REAL
from headway.server.build import alive
from headway.server.caller import OPEN_CALLER, ROLES
from headway.server.overview import MOST_WAITING, FeedMessage
from headway.server.service import ServerOptions, Service
from headway.stores import open_store
from headway.web.dashboard import Dashboard
from headway.web.feed import Feed
from headway.web.page import DashboardPage, PageView, TemplateContext
from headway.web.pages import gates
from headway.web.shared_reads import SharedReads
from tests.web.rig import dashboard, do, signed_in
from tests.web.test_web_access import declare

LIVE = {"Accept": "text/event-stream"}


async def messages(reply: httpx.Response) -> AsyncIterator[tuple[str, Any]]:
    event = ""
    async for line in reply.aiter_lines():
        if line.startswith("event: "):
            event = line[7:]
        elif line.startswith("data: "):
            yield event, json.loads(line[6:])


async def until(found: AsyncIterator[tuple[str, Any]], words: str) -> str:
    """Return the event whose fragments contain these words."""
    async for event, data in found:
        if words in "".join(data["parts"].values()):
            return event
    raise AssertionError


async def test_page_is_sent_completely_and_then_only_changes():
    # Only actions refresh the pages.
    async with dashboard(events_each_s=3_600) as rig, signed_in(rig, Role.OPERATOR) as http:
        await declare(rig, "lines")
        async with http.stream("GET", "/ui/gates", headers=LIVE) as reply:
            assert reply.headers["content-type"].startswith("text/event-stream")
            found = messages(reply)
            assert await until(found, "lines") == "change"
            await do(http, "/ui/-/do/close-gate?gate=lines", script=True, reason="noon")
            assert await until(found, ">closed<") == "change"
        async with http.stream("GET", "/ui", headers=LIVE) as reply:
            found = messages(reply)
            await until(found, "Nothing is held up.")
            async with signed_in(rig, Role.ADMIN) as other:
                await do(other, "/ui/-/do/stop-everything", script=True)
            async for _, data in found:
                if "stopped" in data["parts"] and "Everything is" in data["parts"]["stopped"]:
                    assert "stuck" not in data["parts"]
                    break


async def test_closed_browser_leaves_no_subscription_behind_and_its_requests_are_counted():
    async with dashboard(tokens=False, events_each_s=0.01) as rig, signed_in(rig, None) as http:
        feed = cast("Dashboard", rig.service.system_services["dashboard"]).feed
        async with (
            http.stream("GET", "/ui/gates", headers=LIVE) as one,
            http.stream("GET", "/ui", headers=LIVE) as two,
        ):
            await anext(messages(one))
            await anext(messages(two))
            assert len(feed) == 2
        while len(feed):
            await REAL.pause(0.01)
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("page ")]
        counted = (await http.get("/metrics")).text
        assert 'route="/ui/gates"' in counted


class Counted:
    """A store that counts the calls made to it."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.reads: Counter[str] = Counter()
        self.asked = asyncio.Event()
        self.fails = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def read(self, query: Any) -> Any:
        self.reads[type(query).__name__] += 1
        self.asked.set()
        if self.fails:
            raise StoreUnavailable("it is away")
        return await self._store.read(query)


@asynccontextmanager
async def counted() -> AsyncIterator[tuple[Counted, Feed, PageView]]:
    """Yield a feed of pages whose every refresh is a read of a counted store."""
    inner = open_store("memory://")
    store = Counted(inner)
    service = Service(store, ServerOptions(open_here=True, chores=False, events_each_s=0.01))
    reads = SharedReads(store, service.timing)
    values = dict.fromkeys(gates.PAGE.params, "")
    view = PageView(service=service, reads=reads, caller=OPEN_CALLER, values=values)

    async def facts(page: DashboardPage, view: PageView) -> TemplateContext:
        await store.read(StatsQuery())
        return {**await page.read(view), "can": lambda *_, **__: None, "values": view.values}

    async with alive(service):
        yield store, Feed(service, facts), view
    await inner.close()


async def test_viewers_of_the_same_share_one_read_and_another_filter_or_scope_does_not():
    async with counted() as (_, feed, view):
        viewer = replace(OPEN_CALLER, id="v", name="v", may=ROLES[Role.VIEWER])
        one, _ = feed.join(gates.PAGE, view)
        two, _ = feed.join(gates.PAGE, replace(view, values=dict(view.values)))
        assert one is two
        other, _ = feed.join(gates.PAGE, replace(view, values={**view.values, "only": "shut"}))
        less, _ = feed.join(gates.PAGE, replace(view, caller=viewer))
        named, _ = feed.join(gates.PAGE, replace(view, caller=replace(viewer, id="w", name="w")))
        assert len({id(one), id(other), id(less)}) == 3
        assert named is less
        assert len(feed) == 5


async def test_viewers_of_other_tenants_or_lanes_share_no_read():
    async with counted() as (_, feed, view):
        scopes = (
            {},
            {"lanes": ("a",)},
            {"lanes": ("b",)},
            {"tenants": ("a",)},
            {"tenants": ("b",)},
            {"tenants": ("a",), "lanes": ("a",)},
        )
        callers = [replace(OPEN_CALLER, **scope) for scope in scopes]
        streams = [feed.join(gates.PAGE, replace(view, caller=one))[0] for one in callers]
        assert len({id(one) for one in streams}) == len(scopes)


async def test_nothing_is_read_without_viewers():
    async with counted() as (store, feed, view):
        assert not store.reads
        stream, first = feed.join(gates.PAGE, view)
        _, second = feed.join(gates.PAGE, view)
        await first.next()
        while store.reads["StatsQuery"] < 5:
            store.asked.clear()
            await store.asked.wait()
        feed.leave(stream, first)
        before = store.reads["StatsQuery"]
        while store.reads["StatsQuery"] < before + 3:
            store.asked.clear()
            await store.asked.wait()
        feed.leave(stream, second)
        assert len(feed) == 0
        for _ in range(3):
            await REAL.pause(0)
        before = store.reads.total()
        # Another stream on the same clock refreshes five times; the first no longer does.
        other, third = feed.join(gates.PAGE, replace(view, values={**view.values, "q": "none"}))
        await third.next()
        feed.leave(other, third)
        for _ in range(3):
            await REAL.pause(0)
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("page ")]
        assert store.reads.total() >= before


async def test_versioned_fragments_are_rendered_only_if_the_version_changed():
    looks, rendered, enough = 0, [], asyncio.Event()

    async def facts(page: DashboardPage, view: PageView) -> TemplateContext:
        nonlocal looks
        looks += 1
        if looks == 7:
            enough.set()
        return {"now": looks, "version": [looks // 3]}

    def fragments(*given: Any) -> dict[str, str]:
        rendered.append(given[-1]["now"])
        return {"part": str(rendered[-1])}

    async with counted() as (_, _, view):
        with patch("headway.web.feed.fragments", fragments):
            versioned = Feed(view.service, facts)
            stream, watcher = versioned.join(gates.PAGE, view)
            await enough.wait()
            sent = [json.loads(cast("FeedMessage", await watcher.next()).data) for _ in range(4)]
            versioned.leave(stream, watcher)
    assert rendered == [1, 3, 6]
    assert [one["parts"] for one in sent] == [{}, {"part": "1"}, {"part": "3"}, {"part": "6"}]
    assert [one["now"] for one in sent] == [0, 1, 3, 6]


async def test_outage_of_the_store_is_reported_and_then_everything_is_sent_again():
    async with counted() as (store, feed, view):
        _, watcher = feed.join(gates.PAGE, view)
        events = []
        while len(events) < 2:
            message = await watcher.next()
            events.append(message.event)
        store.fails = True
        while message.event != "away":
            message = await watcher.next()
        store.fails = False
        message = await watcher.next()
        assert message.event == "whole"
        assert set(json.loads(message.data)["parts"]) == {"gates"}


async def test_browser_that_joins_during_an_outage_sees_it():
    async with counted() as (store, feed, look):
        _, first = feed.join(gates.PAGE, look)
        store.fails = True
        while (message := await first.next()) is not None and message.event != "away":
            pass
        _, second = feed.join(gates.PAGE, look)
        events = [cast("FeedMessage", await second.next()).event for _ in range(2)]
        assert events == ["whole", "away"]


async def test_outage_is_not_lost_in_a_full_queue():
    async with counted() as (store, feed, look):
        stream, slow = feed.join(gates.PAGE, look)
        _, other = feed.join(gates.PAGE, look)
        for _ in range(2):
            await other.next()
        while len(slow._waiting) < MOST_WAITING:
            message = stream._message("change", {})
            slow.put(message, message)
        store.fails = True
        while (message := await other.next()) is not None and message.event != "away":
            pass
        assert [one.event for one in slow._waiting] == ["away"]


async def test_page_whose_job_is_removed_says_so_and_does_not_accuse_the_store():
    async with dashboard(events_each_s=0.01) as rig, signed_in(rig, Role.VIEWER) as http:
        made = await rig.send()
        forgotten = False
        read = rig.store.read

        async def read_unless_forgotten(query: Any) -> Any:
            return None if forgotten and isinstance(query, JobQuery) else await read(query)

        with patch.object(rig.store, "read", read_unless_forgotten):
            async with http.stream("GET", f"/ui/jobs/{made}", headers=LIVE) as reply:
                found = messages(reply)
                await until(found, made)
                forgotten = True
                away = await anext(data async for event, data in found if event == "away")
        assert away["parts"] == {"code": "unknown_job", "text": f"there is no job {made!r}"}
