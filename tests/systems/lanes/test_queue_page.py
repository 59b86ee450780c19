"""The page of the HTTP queue in the dashboard: depth, holders, retries, and access by role."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from headway.contract.definitions import Role
from headway.contract.views import GatesQuery
from headway.runtime.timing import REAL
from headway.systems.lanes import make
from headway.systems.lanes.pages import HELD_ROWS
from tests.server.rig import LIMIT_S, Rig
from tests.systems.lanes.queue import Queue
from tests.web.rig import HOSTILE, dashboard, do, signed_in
from tests.web.test_web_pages import Tags, plain

PAGE = "/ui/queue"


@asynccontextmanager
async def operating() -> AsyncIterator[tuple[Rig, Queue, Queue, httpx.AsyncClient]]:
    """Run a dashboard with the system, a producer, a worker, and an operator's browser."""
    async with dashboard(systems=[make({})]) as rig, signed_in(rig, Role.OPERATOR) as http:
        makes = Queue(rig.http, rig.tokens[Role.PRODUCER])
        yield rig, makes, Queue(rig.http, rig.tokens[Role.WORKER]), http


async def text_of(http: httpx.AsyncClient, path: str = PAGE) -> str:
    reply = await http.get(path)
    assert reply.status_code == 200, reply.text
    return plain(reply.text)


async def shown(http: httpx.AsyncClient, words: str, path: str = PAGE) -> str:
    """Return the text of a page, once it contains these words: reads are cached briefly."""
    async with asyncio.timeout(LIMIT_S):
        while words not in (text := await text_of(http, path)):
            await REAL.pause(0.05)
    return text


async def test_lanes_are_shown_the_deepest_first_with_what_workers_hold():
    async with operating() as (_, makes, works, http):
        for lane, many in (("mail", 3), ("sms", 5)):
            for _ in range(many):
                await makes.enqueue(lane, type=f"t-{lane}")
        assert "No worker holds a job." in await text_of(http)
        text = await text_of(http)
        assert text.index("sms") < text.index("mail")
        (job,) = await works.pull("mail", max=1)
        text = await shown(http, job["job_id"][-8:])
        assert "t-mail" in text
        assert "t-sms" not in text
        assert "sms" not in await text_of(http, f"{PAGE}?q=mai")


async def test_dead_jobs_of_a_lane_are_retried_and_a_lane_is_paused():
    async with operating() as (rig, makes, works, http):
        id_ = await makes.enqueue("mail")
        (job,) = await works.pull("mail")
        await works.said("/fail", job, error="no route", dead=True)
        page = (await http.get(PAGE)).text
        assert "queue-retry?lane=mail" in page
        reply = await do(http, "/ui/-/do/queue-retry?lane=mail", reason="it is fixed")
        assert reply.status_code == 303
        assert await makes.status(id_) == "queued"
        assert "queue-retry" not in (await http.get(PAGE)).text
        await do(http, "/ui/-/do/pause-lane?lane=mail", reason="wait")
        assert "mail paused" in await text_of(http)
        (gate,) = (await rig.store.read(GatesQuery(names=("lane:mail",)))).rows
        assert gate.closed_until is not None


async def test_search_is_bounded_and_the_page_says_so():
    async with operating() as (_, makes, works, http):
        for _ in range(HELD_ROWS + 2):
            await makes.enqueue("mail")
        assert len(await works.pull("mail")) == HELD_ROWS + 2
        await shown(http, f"{HELD_ROWS} of {HELD_ROWS + 2} pulled jobs")


async def test_viewer_sees_no_button_and_a_token_only_its_lanes():
    async with operating() as (rig, makes, works, http):
        for lane in ("mail", "sms"):
            await makes.enqueue(lane, type=f"t-{lane}")
            (job,) = await works.pull(lane)
            await works.said("/fail", job, error="no route", dead=True)
            await makes.enqueue(lane, type=f"t-{lane}")
            await works.pull(lane)
        assert "data-ask" in (await http.get(PAGE)).text
        async with signed_in(rig, Role.VIEWER) as viewer:
            page = await viewer.get(PAGE)
            assert page.status_code == 200
            assert "data-ask" not in page.text
            assert (await viewer.get("/ui/-/do/queue-retry?lane=mail")).status_code == 403
        lanes = await rig.token(Role.OPERATOR, lanes=["mail"])
        async with signed_in(rig, lanes) as other:
            assert "sms" not in await text_of(other)
            assert (await other.get("/ui/-/do/queue-retry?lane=sms")).status_code == 403
            assert (await other.get("/ui/-/do/queue-retry?lane=mail")).status_code == 200
        tenant = await rig.token(Role.OPERATOR, tenants=["acme"])
        async with signed_in(rig, tenant) as other:
            assert (await other.get(PAGE)).status_code == 403


async def test_hostile_names_are_shown_as_text():
    async with operating() as (_, makes, works, http):
        for i, evil in enumerate(HOSTILE):
            await makes.enqueue(f"l{i} {evil}", type=f"t {evil}", job_id=f"k {evil}"[:200])
            await works.pull(f"l{i} {evil}", worker="w <img src=x>")
        reply = await http.get(PAGE)
        assert reply.status_code == 200
        seen = Tags(reply.text)
        assert seen.scripts == 1
        assert "img" not in seen.names
        assert not [name for name in seen.attributes if name.startswith("on")]
        for sign in ("\x1b", "\x07", "\N{RIGHT-TO-LEFT OVERRIDE}"):
            assert sign not in seen.text
